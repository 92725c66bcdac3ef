from anychunk.cli import main

main()
