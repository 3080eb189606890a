/*
 * A disk that can lose power, for tests: preloaded into a process, it watches what is written to the files of one
 * directory and remembers what was there before, until a sync makes it durable.
 *
 *   DISK_DIR        the directory
 *   DISK_COUNT      a file that holds the number of syncs that succeeded, and of those that failed, as eight bytes each
 *   DISK_FAIL_SYNC  the number of the first sync that fails with EIO. As on Linux, what it was to make durable then
 *                   counts as clean: a later sync does not save it, only writing it again does
 *   DISK_FAIL_MORE  how many syncs after that one fail too
 *   DISK_LOSE_SYNC  the number of the sync at which the power goes: all that is not durable is undone, the process ends
 *   DISK_TEAR       a seed: when the power goes, only some of what is not durable is undone
 *   DISK_NO_SYNC    if set, syncs say that they succeeded and do nothing
 *   DISK_ONLY       a pattern of names, as in a shell: if set, only syncs of such files fail or do nothing, and only they are
 *                   counted for DISK_FAIL_SYNC
 *
 * The power also goes when a file named "lose" in the directory is synced. The process then ends with status 77.
 * Memory-mapped files (SQLite's -shm, which is made anew after a crash) are not watched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

/* What was in a file before a write, and how long it was. */
struct undo {
    struct undo *older;
    char path[512];
    ino_t inode;
    off_t size;   /* of the file before */
    off_t offset; /* of what was written over */
    size_t length;
    size_t kept; /* how many bytes of it there were before */
    int failed;  /* a sync of it failed */
    unsigned char bytes[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct undo *newest;
static uint64_t syncs_tried, syncs_chosen, syncs_done[2];

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);

static void load(void) {
    if (real_fsync) return;
    real_write = dlsym(RTLD_NEXT, "write");
    real_pread = dlsym(RTLD_NEXT, "pread");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
}

static uint64_t setting(const char *name) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : 0;
}

/* The path of a file of the watched directory, or 0. */
static int watched(int fd, char *path, size_t size) {
    const char *dir = getenv("DISK_DIR");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (!dir || length <= 0) return 0;
    path[length] = 0;
    if (length > 4 && !strcmp(path + length - 4, "-shm")) return 0;
    return !strncmp(path, dir, strlen(dir)) && path[strlen(dir)] == '/';
}

static void remember_piece(int fd, const char *path, const struct stat *stat, off_t offset, size_t length) {
    struct undo *undo = malloc(sizeof *undo + length);
    strcpy(undo->path, path);
    undo->inode = stat->st_ino;
    undo->size = stat->st_size;
    undo->offset = offset;
    undo->length = length;
    ssize_t kept = real_pread(fd, undo->bytes, length, offset);
    undo->kept = kept > 0 ? kept : 0;
    undo->failed = 0;
    /* Writing again what a failed sync gave up makes it wait for the next sync. */
    for (struct undo *other = newest; other; other = other->older)
        if (other->inode == undo->inode && other->offset >= offset
            && other->offset + other->length <= offset + length)
            other->failed = 0;
    undo->older = newest;
    newest = undo;
}

/* Call before the bytes change. Page by page, as they are written to the disk, or not. */
static void remember(int fd, const char *path, off_t offset, size_t length) {
    struct stat stat;
    if (fstat(fd, &stat)) abort();
    while (length > 0) {
        size_t piece = PAGE - offset % PAGE;
        if (piece > length) piece = length;
        remember_piece(fd, path, &stat, offset, piece);
        offset += piece;
        length -= piece;
    }
}

static void lose(void) {
    uint64_t random = setting("DISK_TEAR");
    int tear = random != 0;
    for (struct undo *undo = newest; undo; undo = undo->older) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (tear && random >> 63) continue;
        int fd = open(undo->path, O_RDWR);
        if (fd < 0) continue;
        /* The length of a file may be durable before its bytes are: those are zero then. */
        int shorten = !tear && !undo->failed;
        memset(undo->bytes + undo->kept, 0, undo->length - undo->kept);
        size_t length = shorten ? undo->kept : undo->length;
        if (length && real_pwrite(fd, undo->bytes, length, undo->offset) < 0) abort();
        if (shorten && real_ftruncate(fd, undo->size)) abort();
        close(fd);

    }
    _exit(77);
}

static int sync_file(int fd) {
    char path[512];
    load();
    if (!watched(fd, path, sizeof path)) return real_fsync(fd);
    pthread_mutex_lock(&mutex);
    const char *name = strrchr(path, '/') + 1;
    syncs_tried++;
    if (!strcmp(name, "lose") || syncs_tried == setting("DISK_LOSE_SYNC")) lose();
    const char *only = getenv("DISK_ONLY");
    int chosen = !only || !fnmatch(only, name, 0);
    syncs_chosen += chosen;
    if (chosen && getenv("DISK_NO_SYNC")) {
        pthread_mutex_unlock(&mutex);
        return 0;
    }
    struct stat stat;
    if (fstat(fd, &stat)) abort();
    uint64_t first = setting("DISK_FAIL_SYNC");
    int fails = chosen && first && syncs_chosen >= first && syncs_chosen <= first + setting("DISK_FAIL_MORE");
    for (struct undo **at = &newest; *at;) {
        struct undo *undo = *at;
        if (undo->inode == stat.st_ino && fails) undo->failed = 1;
        if (undo->inode == stat.st_ino && !undo->failed) {
            *at = undo->older;
            free(undo);
        } else {
            at = &undo->older;
        }
    }
    syncs_done[fails]++;
    const char *count = getenv("DISK_COUNT");
    int out = count ? open(count, O_WRONLY | O_CREAT, 0600) : -1;
    if (out >= 0) {
        if (real_pwrite(out, syncs_done, sizeof syncs_done, 0) < 0) abort();
        close(out);
    }
    pthread_mutex_unlock(&mutex);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return real_fsync(fd);
}

int fsync(int fd) { return sync_file(fd); }
int fdatasync(int fd) { return sync_file(fd); }

/* Without power nobody reads what was undone: whoever tries waits until the process ends. */
ssize_t pread(int fd, void *bytes, size_t length, off_t offset) {
    char path[512];
    load();
    if (!watched(fd, path, sizeof path)) return real_pread(fd, bytes, length, offset);
    pthread_mutex_lock(&mutex);
    ssize_t found = real_pread(fd, bytes, length, offset);
    pthread_mutex_unlock(&mutex);
    return found;
}

ssize_t pread64(int fd, void *bytes, size_t length, off64_t offset) { return pread(fd, bytes, length, offset); }

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    char path[512];
    load();
    if (!watched(fd, path, sizeof path)) return real_pwrite(fd, bytes, length, offset);
    pthread_mutex_lock(&mutex);
    remember(fd, path, offset, length);
    ssize_t written = real_pwrite(fd, bytes, length, offset);
    pthread_mutex_unlock(&mutex);
    return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) { return pwrite(fd, bytes, length, offset); }

ssize_t write(int fd, const void *bytes, size_t length) {
    char path[512];
    load();
    if (!watched(fd, path, sizeof path)) return real_write(fd, bytes, length);
    pthread_mutex_lock(&mutex);
    remember(fd, path, lseek(fd, 0, SEEK_CUR), length);
    ssize_t written = real_write(fd, bytes, length);
    pthread_mutex_unlock(&mutex);
    return written;
}

int ftruncate(int fd, off_t size) {
    char path[512];
    load();
    if (!watched(fd, path, sizeof path)) return real_ftruncate(fd, size);
    pthread_mutex_lock(&mutex);
    struct stat stat;
    if (fstat(fd, &stat)) abort();
    if (stat.st_size > size) remember(fd, path, size, stat.st_size - size);
    int result = real_ftruncate(fd, size);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* What was written to a file that is no more can change no other, also not one that gets its name or its inode. */
int unlink(const char *path) {
    static int (*real_unlink)(const char *);
    if (!real_unlink) real_unlink = dlsym(RTLD_NEXT, "unlink");
    pthread_mutex_lock(&mutex);
    int result = real_unlink(path);
    for (struct undo **at = &newest; result == 0 && *at;) {
        struct undo *undo = *at;
        if (!strcmp(undo->path, path)) {
            *at = undo->older;
            free(undo);
        } else {
            at = &undo->older;
        }
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }
