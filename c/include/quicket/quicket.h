/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * QUIC sockets as functions of a library. Each does with a QUIC socket what the call of the system
 * does that has its name without `quicket_`: values, errno and all. Descriptors of these sockets can
 * be waited for together with others, through the functions below.
 */
#ifndef QUICKET_QUICKET_H
#define QUICKET_QUICKET_H

#include <poll.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "quic.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mmsghdr;

/*
 * An option of SOL_QUIC that the kernel's sockets do not have: how many workers receive at the address
 * that the socket will be bound to, each on a thread and with connections of its own. A 32-bit number,
 * 0 for one on each core; to be set before the socket is bound.
 */
#define QUICKET_SOCKOPT_WORKERS 1000

/*
 * Another: the address that the socket will be bound to is shared with other programs, through the
 * switch, which is started where there is none (the program `quicket` must be found). Text, what the
 * program is called there, of at most 64 bytes without the final zero; empty for the name of its file. To
 * be set before the socket is bound. Then QUIC_SOCKOPT_ALPN tells the listeners of all programs at the
 * address apart, and SO_REUSEPORT has programs share a list: listen fails with EADDRINUSE where another
 * program has some of the protocols, and quicket_strerror says which.
 */
#define QUICKET_SOCKOPT_SWITCH 1001

/*
 * Another: whether the connection of a client follows this host from network to network. When its address goes, or
 * the way to the server leads by another network, it moves by itself (RFC 9000, Section 9). A 32-bit number, 0 by
 * default; to be set before the socket is connected, and without effect on one that the program has bound. A handshake
 * whose address goes fails with ECONNABORTED.
 */
#define QUICKET_SOCKOPT_FOLLOW_NETWORK 1002

int quicket_socket(int domain, int type, int protocol);
int quicket_bind(int fd, const struct sockaddr *address, socklen_t length);
int quicket_listen(int fd, int backlog);
int quicket_accept(int fd, struct sockaddr *address, socklen_t *length);
int quicket_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags);
int quicket_connect(int fd, const struct sockaddr *address, socklen_t length);
int quicket_shutdown(int fd, int how);
int quicket_getsockname(int fd, struct sockaddr *address, socklen_t *length);
int quicket_getpeername(int fd, struct sockaddr *address, socklen_t *length);
int quicket_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int quicket_setsockopt(int fd, int level, int name, const void *value, socklen_t length);

ssize_t quicket_send(int fd, const void *data, size_t length, int flags);
ssize_t quicket_sendto(int fd, const void *data, size_t length, int flags,
		       const struct sockaddr *address, socklen_t address_length);
ssize_t quicket_sendmsg(int fd, const struct msghdr *message, int flags);
int quicket_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags);
ssize_t quicket_write(int fd, const void *data, size_t length);
ssize_t quicket_writev(int fd, const struct iovec *parts, int count);
ssize_t quicket_sendfile(int fd, int file, off_t *offset, size_t count);

ssize_t quicket_recv(int fd, void *data, size_t length, int flags);
ssize_t quicket_recvfrom(int fd, void *data, size_t length, int flags,
			 struct sockaddr *address, socklen_t *address_length);
ssize_t quicket_recvmsg(int fd, struct msghdr *message, int flags);
int quicket_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		     struct timespec *timeout);
ssize_t quicket_read(int fd, void *data, size_t length);
ssize_t quicket_readv(int fd, const struct iovec *parts, int count);

/* Of QUIC sockets only; quicket_dup2 and quicket_dup3 where at least one of both is one. */
int quicket_close(int fd);
int quicket_dup(int fd);
int quicket_dup2(int from, int to);
int quicket_dup3(int from, int to, int flags);
/* Of all descriptors of the range but those that the library has for itself. */
int quicket_close_range(unsigned int first, unsigned int last, int flags);
int quicket_fcntl(int fd, int command, uintptr_t argument);
int quicket_ioctl(int fd, unsigned long request, uintptr_t argument);

/* Of sets that contain QUIC sockets, and others. */
int quicket_poll(struct pollfd *fds, nfds_t count, int timeout);
int quicket_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		  const sigset_t *signals);
int quicket_select(int count, fd_set *read, fd_set *write, fd_set *except,
		   struct timeval *timeout);
int quicket_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);

/*
 * Handshakes by Quicket's own TLS, for programs that have none. A client trusts the roots of
 * `ca_file`, or of the system, or the one certificate with the SHA-256 fingerprint `pin`. Lists of
 * application protocols are separated by commas; NULL stands for none. On a socket with O_NONBLOCK
 * EAGAIN says that it is under way: quicket_continue_handshake, when the socket is ready, tells.
 */
int quicket_client_handshake(int fd, const char *hostname, const char *alpns,
			     const char *ca_file, const char *pin);
int quicket_server_handshake(int fd, const char *key_file, const char *cert_file,
			     const char *alpns);
int quicket_continue_handshake(int fd);

/*
 * What resumes a client's session in another connection, by Quicket's TLS: to be got when the server
 * has sent it (QUIC_EVENT_NEW_SESSION_TICKET; until then of size 0), to be set before the handshake.
 * `*size` is the room, and then the size: ENOBUFS where the room is too little for it.
 *
 * quicket_client_early_handshake does as quicket_client_handshake, but returns at once: what is sent
 * until quicket_continue_handshake returns 0 goes as early data, if the session permits.
 * quicket_server_early_handshake does as quicket_server_handshake, and takes early data. ATTACKERS CAN
 * REPLAY EARLY DATA (RFC 9001, Section 9.2).
 */
int quicket_session_get_data(int fd, void *data, size_t *size);
int quicket_session_set_data(int fd, const void *data, size_t size);
int quicket_client_early_handshake(int fd, const char *hostname, const char *alpns,
				   const char *ca_file, const char *pin);
int quicket_server_early_handshake(int fd, const char *key_file, const char *cert_file,
				   const char *alpns);

/*
 * What the error number `error` (errno) means and, where `fd` is a QUIC socket, why: what was wrong with
 * a file or text that was given for its handshake, how its connection ended, as in "Protocol error: the
 * server's certificate is not trusted", or why the switch refused it an address or its protocols. Any other
 * number for `fd` gives the meaning alone. The text is the thread's, until it calls this again. errno stays.
 */
const char *quicket_strerror(int fd, int error);

/* The application protocol that both sides speak, without a zero at its end. */
int quicket_session_get_alpn(int fd, void *alpn, size_t *size);

#ifdef __cplusplus
}
#endif

#endif
