/* The machine's clock, ahead by as many seconds as the file of CLOCK_FILE says. All other clocks are as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at)
{
    long failed = syscall(SYS_clock_gettime, id, at);
    const char *file = getenv("CLOCK_FILE");
    if (failed || id != CLOCK_REALTIME || !file)
        return failed ? -1 : 0;
    char text[32] = "";
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
        at->tv_sec += atol(text);
    if (fd >= 0)
        close(fd);
    return 0;
}
