/* Reading files one after the other, in files.c: chunks that are a file each. */
#ifndef ANYCHUNK_FILES_H
#define ANYCHUNK_FILES_H

#include "native.h"

typedef struct {
    int folder;      /* the handle of the folder that names begin at; -1: there are no files */
    int64_t most;    /* longer files are left to the caller */
    uint8_t *memory; /* holds the last file */
    size_t size;
    char *above; /* the folder of the last file, and its handle */
    int handle;
} Files;

/* Read a file to `memory`: 1 if that is all of it, -1 if there is none, 0 if the caller should look at it: it is a link, or
 * behind one, or not a regular file, too long, or changes. */
int read_file(Files *files, const char *name, size_t *length);

void end_files(Files *files);

#endif
