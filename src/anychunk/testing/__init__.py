"""Test classes for codecs and formats, to inherit in any project's tests.

`anychunk.testing.codecs.CodecContract` and `anychunk.testing.formats.FormatContract` check what
every codec and every format must do. They need pytest.
"""
