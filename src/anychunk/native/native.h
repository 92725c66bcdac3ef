/* What every C file of the module includes. Only the stable ABI of Python 3.12 is used, so that one wheel serves all
 * later versions. */
#ifndef ANYCHUNK_NATIVE_H
#define ANYCHUNK_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

PyObject *fax_rows(PyObject *module, PyObject *args);
PyObject *narrow_samples(PyObject *module, PyObject *args);
PyObject *lzw_bytes(PyObject *module, PyObject *args);
PyObject *openjpeg_decode(PyObject *module, PyObject *args);
PyObject *packbits_bytes(PyObject *module, PyObject *args);
PyObject *place_packbits(PyObject *module, PyObject *args);
PyObject *place_chunks(PyObject *module, PyObject *args);
PyObject *place_rows(PyObject *module, PyObject *args);
PyObject *separate_bands(PyObject *module, PyObject *args);
PyObject *tile_parts(PyObject *module, PyObject *args);
PyObject *walk_all(PyObject *module, PyObject *args);
PyObject *walk_begin(PyObject *module, PyObject *args);
PyObject *walk_resume(PyObject *module, PyObject *args);
PyObject *walk_finish(PyObject *module, PyObject *args);
PyObject *xz_block(PyObject *module, PyObject *args);

#endif
