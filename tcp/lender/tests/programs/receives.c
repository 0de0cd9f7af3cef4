// Receives by one call after the other side has reset the connection, and says what it has heard.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 4) return 2;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0 || write(fd, "!", 1) != 1) return 3;
    struct pollfd end = {.fd = fd, .events = POLLIN};
    if (poll(&end, 1, 20000) != 1) return 4;
    // A length that the compiler does not know, of a buffer that it does.
    size_t len = strtoul(words[3], NULL, 10);
    char data[32];
    struct iovec part = {data, sizeof data};
    struct mmsghdr messages[2] = {{{.msg_iov = &part, .msg_iovlen = 1}, 0}};
    const char *call = words[2];
    ssize_t got = -2;
    if (strcmp(call, "read") == 0) got = read(fd, data, len);
    if (strcmp(call, "recv") == 0) got = recv(fd, data, len, 0);
    if (strcmp(call, "recvfrom") == 0) got = recvfrom(fd, data, len, 0, NULL, NULL);
    if (strcmp(call, "recvmmsg") == 0) got = recvmmsg(fd, messages, 1, 0, NULL);
    if (strcmp(call, "preadv2") == 0) got = preadv2(fd, &part, 1, -1, 0);
    if (got == -1) puts(strerror(errno));
    else printf("%zd\n", got);
    return 0;
}
