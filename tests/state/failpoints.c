/* Preloaded into a test process: writes down each change of the files below a folder, so that a loss of power can be
   played at any moment of it, and fails those calls that it is told to. Entries of the trace: "kind inode at size\n",
   then `size` bytes. Kinds: create, open, directory, hard link, rename, unlink, write, truncate, sync, note. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static char root[4096] = "";
static int trace = -1;
static long calls = 0, first = 0, last = 0;
static int error = 0;

/* From now on the calls to open, write, sync and rename from number `from` to before `to` fail with `code`. */
void failpoints_fail(long from, long to, int code) { calls = 0; first = from; last = to; error = code; }
long failpoints_calls(void) { return calls; }

static int fails(void) {
    long number = calls++;
    if (number < first || number >= last) return 0;
    errno = error;
    return 1;
}

static void put(char kind, unsigned long inode, long at, const void *data, size_t size) {
    char head[96];
    int length = snprintf(head, sizeof head, "%c %lu %ld %zu\n", kind, inode, at, size);
    struct iovec parts[] = {{head, length}, {(void *)data, size}};
    syscall(SYS_writev, trace, parts, 2);
}

void failpoints_note(const char *text) {
    pthread_mutex_lock(&turn);
    put('n', 0, 0, text, strlen(text));
    pthread_mutex_unlock(&turn);
}

void failpoints_record(const char *folder, const char *path) {
    snprintf(root, sizeof root, "%s/", folder);
    trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
}

static int below(const char *path) { return trace >= 0 && !strncmp(path, root, strlen(root)); }

/* Says if a file, or a folder, is below the root or is the root itself. */
static int is_ours(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = trace < 0 ? -1 : readlink(link, path, sizeof path - 2);
    if (length < 0) return 0;
    strcpy(path + length, "/");
    return below(path);
}

static unsigned long inode_of(int fd) {
    struct stat status;
    return fstat(fd, &status) ? 0 : status.st_ino;
}

static void put_name(char kind, const char *path, const char *other) {
    struct stat status;
    char both[8192];
    int length = snprintf(both, sizeof both, "%s\n%s", path, other);
    put(kind, lstat(path, &status) ? 0 : status.st_ino, 0, both, length);
}

static void put_unlinked(int folder, const char *name) {
    char link[64], path[4096] = "", whole[8192];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    if (readlink(link, path, sizeof path - 1) < 0) return;
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    if (below(whole)) put_name('u', whole, "");
}

#define WRAP(result, name, parameters, arguments, ours, may_fail, record) \
    result name parameters {                                              \
        static result (*real) parameters;                                 \
        if (!real) real = dlsym(RTLD_NEXT, #name);                        \
        if (!(ours)) return real arguments;                               \
        pthread_mutex_lock(&turn);                                        \
        result answer = may_fail && fails() ? -1 : real arguments;        \
        if (answer >= 0) record;                                          \
        pthread_mutex_unlock(&turn);                                      \
        return answer;                                                    \
    }

#define WRITTEN put('w', inode_of(fd), lseek(fd, 0, SEEK_CUR) - answer, data, answer)

WRAP(int, fsync, (int fd), (fd), is_ours(fd), 1, put('s', inode_of(fd), 0, "", 0))
WRAP(int, fdatasync, (int fd), (fd), is_ours(fd), 1, put('s', inode_of(fd), 0, "", 0))
WRAP(int, ftruncate64, (int fd, off64_t size), (fd, size), is_ours(fd), 0, put('t', inode_of(fd), size, "", 0))
WRAP(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), is_ours(fd), 1, WRITTEN)
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), is_ours(fd), 1,
     put('w', inode_of(fd), at, data, answer))
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), below(path), 0, put_name('d', path, ""))
WRAP(int, rmdir, (const char *path), (path), below(path), 0, put_name('u', path, ""))
WRAP(int, unlink, (const char *path), (path), below(path), 0, put_name('u', path, ""))
WRAP(int, unlinkat, (int folder, const char *name, int flags), (folder, name, flags), is_ours(folder), 0,
     put_unlinked(folder, name))
WRAP(int, link, (const char *from, const char *to), (from, to), below(to), 0, put_name('h', from, to))
WRAP(int, rename, (const char *from, const char *to), (from, to), below(to), 1, put_name('r', from, to))

static int opened(const char *path, int flags, mode_t mode) {
    static int (*real)(const char *, int, ...);
    if (!real) real = dlsym(RTLD_NEXT, "open64");
    if (!below(path)) return real(path, flags, mode);
    pthread_mutex_lock(&turn);
    int is_new = (flags & O_CREAT) && access(path, F_OK);
    int fd = fails() ? -1 : real(path, flags, mode);
    if (fd >= 0) put_name(is_new ? 'c' : 'o', path, "");
    if (fd >= 0 && (flags & O_TRUNC)) put('t', inode_of(fd), 0, "", 0);
    pthread_mutex_unlock(&turn);
    return fd;
}

#define OPEN(name)                                \
    int name(const char *path, int flags, ...) {  \
        va_list rest;                             \
        va_start(rest, flags);                    \
        mode_t mode = va_arg(rest, mode_t);       \
        va_end(rest);                             \
        return opened(path, flags, mode);         \
    }

OPEN(open)
OPEN(open64)
