/*
 * Has a program that was written for the system's calls use the library's on QUIC sockets, and the
 * system's on all else. To be included before the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <quicket/quicket.h>

/* The library knows its own descriptors only. */
#define CALL(type, name, parameters, arguments)                                                  \
	static inline __attribute__((unused)) type linked_##name parameters                      \
	{                                                                                        \
		type answer = (type)quicket_##name arguments;                                    \
		return answer == -1 && errno == EBADF ? (type)name arguments : answer;           \
	}

CALL(int, bind, (int fd, const struct sockaddr *at, socklen_t length), (fd, at, length))
CALL(int, listen, (int fd, int backlog), (fd, backlog))
CALL(int, accept, (int fd, struct sockaddr *at, socklen_t *length), (fd, at, length))
CALL(int, accept4, (int fd, struct sockaddr *at, socklen_t *length, int flags),
     (fd, at, length, flags))
CALL(int, connect, (int fd, const struct sockaddr *at, socklen_t length), (fd, at, length))
CALL(int, shutdown, (int fd, int how), (fd, how))
CALL(int, getsockname, (int fd, struct sockaddr *at, socklen_t *length), (fd, at, length))
CALL(int, getpeername, (int fd, struct sockaddr *at, socklen_t *length), (fd, at, length))
CALL(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *length),
     (fd, level, name, value, length))
CALL(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length),
     (fd, level, name, value, length))
CALL(ssize_t, send, (int fd, const void *data, size_t length, int flags),
     (fd, data, length, flags))
CALL(ssize_t, sendto,
     (int fd, const void *data, size_t length, int flags, const struct sockaddr *at, socklen_t size),
     (fd, data, length, flags, at, size))
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned int count, int flags),
     (fd, messages, count, flags))
CALL(ssize_t, write, (int fd, const void *data, size_t length), (fd, data, length))
CALL(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count))
CALL(ssize_t, sendfile, (int fd, int file, off_t *offset, size_t count), (fd, file, offset, count))
CALL(ssize_t, recv, (int fd, void *data, size_t length, int flags), (fd, data, length, flags))
CALL(ssize_t, recvfrom,
     (int fd, void *data, size_t length, int flags, struct sockaddr *at, socklen_t *size),
     (fd, data, length, flags, at, size))
CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
CALL(int, recvmmsg,
     (int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout),
     (fd, messages, count, flags, timeout))
CALL(ssize_t, read, (int fd, void *data, size_t length), (fd, data, length))
CALL(ssize_t, readv, (int fd, const struct iovec *parts, int count), (fd, parts, count))
CALL(int, close, (int fd), (fd))
CALL(int, dup, (int fd), (fd))
CALL(int, dup2, (int from, int to), (from, to))

static inline __attribute__((unused)) int linked_socket(int domain, int type, int protocol)
{
	int is_quic = protocol == IPPROTO_QUIC && (domain == AF_INET || domain == AF_INET6);
	return is_quic ? quicket_socket(domain, type, protocol) : socket(domain, type, protocol);
}

static inline __attribute__((unused)) int linked_fcntl(int fd, int command, ...)
{
	va_list arguments;
	va_start(arguments, command);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	int answer = quicket_fcntl(fd, command, (uintptr_t)argument);
	return answer == -1 && errno == EBADF ? fcntl(fd, command, argument) : answer;
}

static inline __attribute__((unused)) int linked_ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	va_start(arguments, request);
	void *argument = va_arg(arguments, void *);
	va_end(arguments);
	int answer = quicket_ioctl(fd, request, (uintptr_t)argument);
	return answer == -1 && errno == EBADF ? ioctl(fd, request, argument) : answer;
}

static inline __attribute__((unused)) int linked_pselect(int count, fd_set *read_fds,
							  fd_set *write_fds, fd_set *except_fds,
							  const struct timespec *timeout,
							  const sigset_t *signals)
{
	struct timeval time = { .tv_sec = timeout->tv_sec };
	(void)signals;
	return quicket_select(count, read_fds, write_fds, except_fds, &time);
}

#define socket(...) linked_socket(__VA_ARGS__)
#define bind(...) linked_bind(__VA_ARGS__)
#define listen(...) linked_listen(__VA_ARGS__)
#define accept(...) linked_accept(__VA_ARGS__)
#define accept4(...) linked_accept4(__VA_ARGS__)
#define connect(...) linked_connect(__VA_ARGS__)
#define shutdown(...) linked_shutdown(__VA_ARGS__)
#define getsockname(...) linked_getsockname(__VA_ARGS__)
#define getpeername(...) linked_getpeername(__VA_ARGS__)
#define getsockopt(...) linked_getsockopt(__VA_ARGS__)
#define setsockopt(...) linked_setsockopt(__VA_ARGS__)
#define send(...) linked_send(__VA_ARGS__)
#define sendto(...) linked_sendto(__VA_ARGS__)
#define sendmsg(...) linked_sendmsg(__VA_ARGS__)
#define sendmmsg(...) linked_sendmmsg(__VA_ARGS__)
#define write(...) linked_write(__VA_ARGS__)
#define writev(...) linked_writev(__VA_ARGS__)
#define sendfile(...) linked_sendfile(__VA_ARGS__)
#define recv(...) linked_recv(__VA_ARGS__)
#define recvfrom(...) linked_recvfrom(__VA_ARGS__)
#define recvmsg(...) linked_recvmsg(__VA_ARGS__)
#define recvmmsg(...) linked_recvmmsg(__VA_ARGS__)
#define read(...) linked_read(__VA_ARGS__)
#define readv(...) linked_readv(__VA_ARGS__)
#define close(...) linked_close(__VA_ARGS__)
#define dup(...) linked_dup(__VA_ARGS__)
#define dup2(...) linked_dup2(__VA_ARGS__)
#define fcntl(...) linked_fcntl(__VA_ARGS__, NULL)
#define ioctl(...) linked_ioctl(__VA_ARGS__, NULL)
/* These know both kinds of descriptors themselves. */
#define poll(...) quicket_poll(__VA_ARGS__)
#define ppoll(...) quicket_ppoll(__VA_ARGS__)
#define select(...) quicket_select(__VA_ARGS__)
#define pselect(...) linked_pselect(__VA_ARGS__)
#define epoll_ctl(...) quicket_epoll_ctl(__VA_ARGS__)
#define close_range(...) quicket_close_range(__VA_ARGS__)
