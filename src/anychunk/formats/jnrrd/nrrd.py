"""NRRD: nearly raw raster data, the older format behind JNRRD."""
def sniff(head: bytes) -> bool: return False
def parse(source): raise NotImplementedError
