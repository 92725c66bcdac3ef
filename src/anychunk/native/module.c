/* The optional compiled module `anychunk.native._loops`: one entry per function, each in a C file of its own. */
#include "native.h"

static PyMethodDef functions[] = {
    {"fax_rows", fax_rows, METH_VARARGS, "Decode Group 4 facsimile, if it is exactly as T.6 prescribes."},
    {"narrow_samples", narrow_samples, METH_VARARGS, "Copy integers to a smaller type, if all are in their range."},
    {"lzw_bytes", lzw_bytes, METH_VARARGS, "Decode LZW, if it is exactly as TIFF prescribes."},
    {"openjpeg_decode", openjpeg_decode, METH_VARARGS, "Decode a codestream by the given functions of OpenJPEG."},
    {"packbits_bytes", packbits_bytes, METH_VARARGS, "Decode PackBits that do not reach beyond their end."},
    {"place_chunks", place_chunks, METH_VARARGS, "Decode many chunks to their places in an array."},
    {"place_rows", place_rows, METH_VARARGS, "Copy decompressed rows of a tile to their place in an array."},
    {"place_packbits", place_packbits, METH_VARARGS, "Decode PackBits, and do the same with its rows."},
    {"separate_bands", separate_bands, METH_VARARGS, "Copy interleaved samples, each band by itself."},
    {"tile_parts", tile_parts, METH_VARARGS, "Find the tile-parts of a codestream that has one per tile."},
    {"walk_all", walk_all, METH_VARARGS, "Return how many tiles are exactly their packets."},
    {"walk_begin", walk_begin, METH_VARARGS, "Prepare the walk over the packets of a tile."},
    {"walk_resume", walk_resume, METH_VARARGS, "Walk as far as the given bytes reach."},
    {"walk_finish", walk_finish, METH_VARARGS, "Return the table of code-blocks."},
    {"xz_block", xz_block, METH_VARARGS, "Return what the only block of an .xz stream decodes to."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loops", "Loops that are too slow in Python.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
