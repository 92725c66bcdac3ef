/* Files by relative names, each opened from the handle of its folder, and every folder from that above: so no link is
 * followed, whatever is renamed meanwhile.
 */
#include "files.h"

#include <stdlib.h>
#include <string.h>

#ifdef _WIN32

int read_file(Files *files, const char *name, size_t *length) { return 0; }
void end_files(Files *files) {}

#else

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_FLAGS = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, FOLDER_FLAGS = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY };

static void forget(Files *files)
{
    if (files->above != NULL)
        close(files->handle);
    free(files->above);
    files->above = NULL;
}

/* Return the handle of the folder with the first `length` bytes of a name; -1 with errno. */
static int open_folder(Files *files, const char *name, size_t length)
{
    if (length == 0)
        return files->folder;
    if (files->above != NULL && strncmp(files->above, name, length) == 0 && files->above[length] == 0)
        return files->handle;
    forget(files);
    char *path = malloc(length + 1);
    if (path == NULL)
        return -1;
    memcpy(path, name, length);
    path[length] = 0;
    int handle = files->folder;
    for (char *part = path; part != NULL;) {
        char *slash = strchr(part, '/');
        if (slash != NULL)
            *slash = 0;
        int next = -1;
        if (*part == 0 || strcmp(part, ".") == 0 || strcmp(part, "..") == 0)
            errno = EINVAL;
        else
            next = openat(handle, part, FOLDER_FLAGS);
        int why = errno;
        if (handle != files->folder)
            close(handle);
        if (slash != NULL)
            *slash = '/';
        if (next < 0) {
            free(path);
            errno = why;
            return -1;
        }
        handle = next, part = slash == NULL ? NULL : slash + 1;
    }
    files->above = path, files->handle = handle;
    return handle;
}

/* Read a file that is open. */
static int read_all(Files *files, int handle, size_t *length)
{
    struct stat status;
    if (fstat(handle, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > files->most)
        return 0;
    size_t size = (size_t)status.st_size, at = 0;
    if (size > files->size || files->memory == NULL) {
        free(files->memory);
        files->size = size + size / 4 + 1;
        files->memory = malloc(files->size);
        if (files->memory == NULL)
            return 0;
    }
    while (at < size) {
        ssize_t found = read(handle, files->memory + at, size - at);
        if (found <= 0)
            return 0;
        at += (size_t)found;
    }
    *length = size;
    return 1;
}

int read_file(Files *files, const char *name, size_t *length)
{
    const char *slash = strrchr(name, '/'), *last = slash == NULL ? name : slash + 1;
    int above = open_folder(files, name, slash == NULL ? 0 : (size_t)(slash - name));
    if (above < 0)
        return errno == ENOENT ? -1 : 0;
    int handle = openat(above, last, FILE_FLAGS);
    if (handle < 0)
        return errno == ENOENT ? -1 : 0;
    int found = read_all(files, handle, length);
    close(handle);
    return found;
}

void end_files(Files *files)
{
    forget(files);
    free(files->memory);
    files->memory = NULL;
}

#endif
