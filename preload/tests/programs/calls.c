/* Each call of the system on QUIC sockets: what works, and what fails as in the kernel. */
#include "pair.h"

#include <linux/sockios.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define WAIT 10000

static short polled(int fd, short events, int timeout)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };
	int ready = poll(&poll_fd, 1, timeout);
	CHECK(ready >= 0);
	return poll_fd.revents;
}

static void transfer(int family)
{
	struct pair pair = connected(family, family == AF_INET ? SOCK_STREAM : SOCK_DGRAM);
	char data[64];
	int64_t id;
	uint32_t flags;

	CHECK(send_on(pair.client, "hello", 5, -1, QUIC_STREAM_FLAG_NEW) == 5);
	CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 0 && memcmp(data, "hello", 5) == 0);
	/* Without a stream: the latest that is open. */
	CHECK(write(pair.server, "world", 5) == 5);
	CHECK(recv(pair.client, data, 2, MSG_PEEK) == 2);
	CHECK(read(pair.client, data, 2) == 2 && memcmp(data, "wo", 2) == 0);
	struct iovec parts[3] = { { data, 1 }, { NULL, 0 }, { data + 1, 20 } };
	CHECK(readv(pair.client, parts, 3) == 3 && memcmp(data, "rld", 3) == 0);
	struct iovec more[2] = { { "ab", 2 }, { "cd", 2 } };
	CHECK(writev(pair.client, more, 2) == 4);
	struct sockaddr_storage from;
	socklen_t from_length = sizeof(from);
	CHECK(recvfrom(pair.server, data, sizeof(data), 0, (struct sockaddr *)&from,
		       &from_length) == 4);
	CHECK(memcmp(data, "abcd", 4) == 0);

	/* A file, by its own position and by another. */
	FILE *file = tmpfile();
	CHECK(file != NULL && fputs("0123456789", file) >= 0 && fflush(file) == 0);
	int file_fd = fileno(file);
	CHECK(lseek(file_fd, 2, SEEK_SET) == 2);
	CHECK(sendfile(pair.client, file_fd, NULL, 3) == 3);
	CHECK(lseek(file_fd, 0, SEEK_CUR) == 5);
	off_t offset = 7;
	CHECK(sendfile(pair.client, file_fd, &offset, 100) == 3 && offset == 10);
	size_t got = 0;
	while (got < 6) {
		ssize_t length = recv(pair.server, data + got, sizeof(data) - got, 0);
		CHECK(length > 0);
		got += (size_t)length;
	}
	CHECK(memcmp(data, "234789", 6) == 0);

	CHECK(send(pair.client, "!", 1, MSG_FIN) == 1);
	CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 1);
	CHECK(flags & QUIC_STREAM_FLAG_FIN);

	/* Names. */
	struct sockaddr_storage one, other;
	socklen_t one_length = sizeof(one), other_length = sizeof(other);
	memset(&one, 0, sizeof(one));
	memset(&other, 0, sizeof(other));
	CHECK(getsockname(pair.client, (struct sockaddr *)&one, &one_length) == 0);
	CHECK(getpeername(pair.server, (struct sockaddr *)&other, &other_length) == 0);
	CHECK(one_length == other_length && memcmp(&one, &other, one_length) == 0);

	CHECK(shutdown(pair.client, SHUT_RDWR) == 0);
	FAILS(recv(pair.server, data, sizeof(data), 0), ENOTCONN);
	FAILS(send(pair.server, "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK(close(pair.client) == 0 && close(pair.server) == 0 && close(pair.listener) == 0);
	FAILS(close(pair.client), EBADF);
}

static void polling(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[64];

	CHECK(polled(pair.listener, POLLIN | POLLOUT, 0) == 0);
	CHECK(polled(pair.server, POLLIN | POLLOUT, 0) == POLLOUT);
	CHECK(send(pair.client, "a", 1, MSG_SYN) == 1);
	CHECK(polled(pair.server, POLLIN, WAIT) == POLLIN);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	CHECK(polled(pair.server, POLLIN, 0) == 0);

	fd_set set;
	FD_ZERO(&set);
	FD_SET(pair.server, &set);
	CHECK(send(pair.client, "b", 1, 0) == 1);
	struct timeval time = { .tv_sec = WAIT / 1000 };
	CHECK(select(pair.server + 1, &set, NULL, NULL, &time) == 1);
	CHECK(FD_ISSET(pair.server, &set));
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);

	struct timespec precise = { .tv_sec = WAIT / 1000 };
	struct pollfd one = { .fd = pair.server, .events = POLLIN };
	CHECK(send(pair.client, "b", 1, 0) == 1);
	CHECK(ppoll(&one, 1, &precise, NULL) == 1 && one.revents == POLLIN);
	CHECK(pselect(pair.server + 1, &set, NULL, NULL, &precise, NULL) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	FD_ZERO(&set);
	FD_SET(pair.server, &set);
	CHECK(select(pair.server + 1, NULL, &set, NULL, &time) == 1 && FD_ISSET(pair.server, &set));

	/* Level-triggered, then by edges: each arrival is told, even of what was not received. */
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 7 }, told;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
	CHECK(epoll_wait(epoll, &told, 1, 0) == 0);
	CHECK(send(pair.client, "c", 1, 0) == 1);
	CHECK(epoll_wait(epoll, &told, 1, WAIT) == 1 && told.data.u32 == 7);
	CHECK(epoll_wait(epoll, &told, 1, 0) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	CHECK(epoll_wait(epoll, &told, 1, 0) == 0);
	event.events = EPOLLIN | EPOLLET;
	CHECK(epoll_ctl(epoll, EPOLL_CTL_MOD, pair.server, &event) == 0);
	for (int i = 0; i < 3; i++) {
		CHECK(send(pair.client, "d", 1, 0) == 1);
		CHECK(epoll_wait(epoll, &told, 1, WAIT) == 1);
	}

	/* The end of the connection shows in all ways. */
	CHECK(close(pair.client) == 0);
	for (int i = 0; i < WAIT && !(polled(pair.server, POLLIN, 1) & POLLHUP); i++)
		usleep(1000);
	short all = POLLIN | POLLOUT | POLLERR | POLLHUP;
	CHECK(polled(pair.server, POLLIN | POLLOUT, 0) == all);
	CHECK(close(epoll) == 0);

	/* A knock shows at the listener. */
	CHECK(fcntl(pair.listener, F_SETFL, O_NONBLOCK) == 0);
	FAILS(accept(pair.listener, NULL, NULL), EAGAIN);
}

static int queued(int fd, unsigned long request)
{
	int count = -1;
	CHECK(ioctl(fd, request, &count) == 0);
	return count;
}

/* Flags of messages and streams. */
static void flags(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[64];
	int64_t id;
	uint32_t flags;
	/* Each of these changes nothing where it may be given. */
	static const int harmless[] = { MSG_NOSIGNAL, MSG_WAITALL, MSG_DONTWAIT, MSG_BATCH };
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
		CHECK(send(pair.client, "whole", 5, MSG_SYN | MSG_FIN | harmless[i]) == 5);
		CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 5);
		CHECK(id == (int64_t)(4 * i) && (flags & QUIC_STREAM_FLAG_FIN));
	}
	static const int unknown[] = { MSG_OOB, MSG_PEEK, MSG_DONTROUTE, MSG_TRUNC };
	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		FAILS(send(pair.client, "x", 1, MSG_SYN | unknown[i]), EINVAL);
	struct quic_stream_info info = { .stream_id = 16, .stream_flags = 1 };
	FAILS(send_with(pair.client, "x", 1, QUIC_STREAM_INFO, &info, sizeof(info), 0), EINVAL);

	/* MSG_MORE: what is small waits for what follows. */
	while (queued(pair.client, SIOCOUTQ) != 0)
		usleep(1000);
	CHECK(send(pair.client, "part one, ", 10, MSG_SYN | MSG_MORE) == 10);
	CHECK(queued(pair.client, SIOCOUTQNSD) == 10 && queued(pair.server, SIOCINQ) == 0);
	CHECK(send(pair.client, "part two", 8, MSG_FIN) == 8);
	CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 18);
	CHECK(memcmp(data, "part one, part two", 18) == 0 && (flags & QUIC_STREAM_FLAG_FIN));
	FAILS(ioctl(pair.listener, SIOCINQ, &(int){ 0 }), EINVAL);
	FAILS(ioctl(pair.listener, SIOCOUTQ, &(int){ 0 }), EINVAL);

	/* MSG_WAITALL does not wait for more than there is, and MSG_DONTWAIT for nothing. */
	FAILS(recv(pair.server, data, sizeof(data), MSG_DONTWAIT), EAGAIN);
	CHECK(send(pair.client, "abc", 3, MSG_SYN | MSG_FIN) == 3);
	CHECK(recv(pair.server, data, sizeof(data), MSG_WAITALL) == 3);

	/* Without room for the control message the stream's flags are the message's. */
	CHECK(send(pair.client, "abc", 3, MSG_SYN | MSG_FIN) == 3);
	struct iovec part = { .iov_base = data, .iov_len = sizeof(data) };
	char little[4];
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = little,
				  .msg_controllen = sizeof(little) };
	CHECK(recvmsg(pair.server, &message, 0) == 3 && message.msg_controllen == 0);
	CHECK((message.msg_flags & MSG_CTRUNC) && (message.msg_flags & MSG_FIN));
	CHECK(!(message.msg_flags & MSG_EOR));

	/* Several messages in one call. */
	struct iovec parts[3] = { { "one", 3 }, { "two", 3 }, { "three", 5 } };
	struct mmsghdr several[3] = { 0 };
	for (int i = 0; i < 3; i++) {
		several[i].msg_hdr.msg_iov = &parts[i];
		several[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK(sendmmsg(pair.client, several, 3, MSG_SYN) == 1);
	CHECK(sendmmsg(pair.client, several + 1, 2, 0) == 2);
	while (queued(pair.server, SIOCINQ) != 11)
		usleep(1000);
	parts[0] = (struct iovec){ data, 4 };
	parts[1] = (struct iovec){ data + 4, 4 };
	parts[2] = (struct iovec){ data + 8, 4 };
	CHECK(recvmmsg(pair.server, several, 3, 0, NULL) == 3);
	CHECK(several[0].msg_len == 4 && several[1].msg_len == 4 && several[2].msg_len == 3);
	CHECK(memcmp(data, "onetwothree", 11) == 0);
}

static volatile sig_atomic_t pipes;

static void on_pipe(int number)
{
	(void)number;
	pipes++;
}

/* A socket for IPv6 has the port in both families, unless it shall not. */
static void families(void)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	int tries = 0;
	for (int only = 0; only < 2; only++) {
		int six = socket(AF_INET6, SOCK_STREAM, IPPROTO_QUIC);
		int four = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
		socklen_t length = sizeof(int);
		int got = -1;
		CHECK(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) == 0);
		CHECK(getsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &got, &length) == 0 && got == only);
		FAILS(setsockopt(four, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)), ENOPROTOOPT);
		v6.sin6_port = 0;
		CHECK(bind(six, (struct sockaddr *)&v6, sizeof(v6)) == 0);
		length = sizeof(v6);
		CHECK(getsockname(six, (struct sockaddr *)&v6, &length) == 0 && v6.sin6_port != 0);
		FAILS(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)), EINVAL);
		v4.sin_port = v6.sin6_port;
		if (!only) {
			FAILS(bind(four, (struct sockaddr *)&v4, sizeof(v4)), EADDRINUSE);
		} else if (bind(four, (struct sockaddr *)&v4, sizeof(v4)) != 0) {
			/* Another program's, by chance. */
			CHECK(errno == EADDRINUSE && ++tries < 50);
			CHECK(close(six) == 0 && close(four) == 0);
			only--;
			continue;
		}
		v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (only)
			FAILS(connect(six, (struct sockaddr *)&v4, sizeof(v4)), EINVAL);
		else
			CHECK(connect(six, (struct sockaddr *)&v4, sizeof(v4)) == 0);
		v4.sin_addr.s_addr = 0;
		CHECK(close(six) == 0 && close(four) == 0);
	}
}

/* Ways that lead around the calls of sockets: to the same data, or nowhere. */
static void detours(void)
{
	struct pair pair = connected(AF_INET, SOCK_STREAM);
	char data[64];
	CHECK(send(pair.client, "-", 1, MSG_SYN) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);

	FILE *out = fdopen(dup(pair.client), "w"), *in = fdopen(dup(pair.server), "rb");
	CHECK(out != NULL && in != NULL);
	static char large[300000];
	memset(large, 'x', sizeof(large));
	CHECK(fprintf(out, "line %d\n", 1) == 7 && fputs("line 2\n", out) >= 0);
	CHECK(fwrite(large, 1, sizeof(large), out) == sizeof(large) && fflush(out) == 0);
	CHECK(fgets(data, sizeof(data), in) != NULL && strcmp(data, "line 1\n") == 0);
	CHECK(fgets(data, sizeof(data), in) != NULL && strcmp(data, "line 2\n") == 0);
	static char got[sizeof(large)];
	CHECK(fread(got, 1, sizeof(got), in) == sizeof(got));
	CHECK(memcmp(got, large, sizeof(large)) == 0);
	CHECK(fseek(in, 0, SEEK_SET) == -1);
	CHECK(fclose(out) == 0 && fclose(in) == 0);
	CHECK(fdopen(pair.client, "nonsense") == NULL && errno == EINVAL);

	/* The socket is still open: the streams had duplicates. */
	struct iovec parts[2] = { { "ab", 2 }, { "cd", 2 } }, room = { data, sizeof(data) };
	CHECK(pwritev2(pair.client, parts, 2, -1, 0) == 4);
	CHECK(preadv2(pair.server, &room, 1, -1, 0) == 4 && memcmp(data, "abcd", 4) == 0);
	FAILS(preadv2(pair.server, &room, 1, -1, RWF_NOWAIT), EAGAIN);
	FAILS(preadv2(pair.server, &room, 1, 0, 0), ESPIPE);
	FAILS(pwritev2(pair.client, parts, 2, -1, RWF_APPEND), EOPNOTSUPP);
	FAILS(pwrite(pair.client, "x", 1, 0), ESPIPE);

	int ends[2];
	CHECK(pipe(ends) == 0 && write(ends[1], "lost?", 5) == 5);
	FAILS(splice(ends[0], NULL, pair.client, NULL, 5, 0), EINVAL);
	FAILS(splice(pair.server, NULL, ends[1], NULL, 5, SPLICE_F_NONBLOCK), EINVAL);
	FAILS(vmsplice(pair.client, parts, 1, 0), EINVAL);
	FAILS(tee(ends[0], pair.client, 5, 0), EINVAL);
	CHECK(read(ends[0], data, sizeof(data)) == 5);
	/* All of it was as if it had not been. */
	CHECK(polled(pair.server, POLLIN, 0) == 0);
	CHECK(send(pair.client, "end", 3, 0) == 3);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 3);
	CHECK(close(pair.client) == 0 && close(pair.server) == 0 && close(pair.listener) == 0);
	/* There are no pairs of sockets of the Internet's protocols. */
	int sockets[2];
	FAILS(socketpair(AF_INET, SOCK_STREAM, IPPROTO_QUIC, sockets), EOPNOTSUPP);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	CHECK(close(sockets[0]) == 0 && close(sockets[1]) == 0);
}

/* The process ends as soon as it has sockets. */
static void sudden(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int count = 0; count < 20; count++) {
		int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
		CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	}
}

static void errors(void)
{
	FAILS(socket(AF_UNIX, SOCK_DGRAM, IPPROTO_QUIC), EPROTONOSUPPORT);
	FAILS(socket(AF_INET, SOCK_RAW, IPPROTO_QUIC), ESOCKTNOSUPPORT);
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[64];
	char *wild = (char *)0xdead0000;
	struct sockaddr *nowhere = (struct sockaddr *)wild;
	socklen_t length = sizeof(struct sockaddr_in);

	FAILS(send(pair.client, wild, 8, MSG_SYN), EFAULT);
	FAILS(write(pair.client, NULL, 8), EFAULT);
	FAILS(sendmsg(pair.client, (struct msghdr *)wild, 0), EFAULT);
	FAILS(writev(pair.client, (struct iovec *)wild, 2), EFAULT);
	FAILS(setsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_CONFIG, wild, 28), EFAULT);
	FAILS(getsockopt(pair.client, SOL_QUIC, QUIC_SOCKOPT_CONFIG, data, (socklen_t *)wild),
	      EFAULT);
	FAILS(getsockname(pair.client, nowhere, &length), EFAULT);
	FAILS(connect(pair.client, nowhere, length), EFAULT);
	FAILS(ioctl(pair.client, FIONREAD, wild), EFAULT);
	CHECK(send(pair.client, "x", 1, MSG_SYN) == 1);
	FAILS(recv(pair.server, wild, 8, 0), EFAULT);
	void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(constant != MAP_FAILED);
	FAILS(recv(pair.server, constant, 8, 0), EFAULT);
	CHECK(recv(pair.server, data, 8, 0) == 1);
	/* More than one page of it is there. */
	char *half = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(half != MAP_FAILED && munmap(half + 4096, 4096) == 0);
	FAILS(send(pair.client, half + 4000, 200, 0), EFAULT);
	CHECK(send(pair.client, half + 4000, 96, 0) == 96);
	CHECK(recv(pair.server, data, sizeof(data), 0) == sizeof(data));

	FAILS(send(pair.client, "x", 1, MSG_OOB), EINVAL);
	FAILS(send(pair.client, "", 0, 0), EMSGSIZE);
	FAILS(listen(pair.client, 1), EINVAL);
	FAILS(accept4(pair.listener, NULL, NULL, 1), EINVAL);
	FAILS(shutdown(pair.client, 3), EINVAL);
	FAILS(getsockopt(pair.client, SOL_QUIC, 99, data, &length), ENOPROTOOPT);
	FAILS(setsockopt(pair.client, IPPROTO_TCP, 1, data, 4), ENOPROTOOPT);
	struct sockaddr nothing = { .sa_family = AF_UNSPEC };
	FAILS(connect(pair.client, &nothing, sizeof(nothing)), EOPNOTSUPP);

	/* A signal for whoever writes after the end, unless he asks for none. */
	struct sigaction action = { .sa_handler = on_pipe };
	CHECK(sigaction(SIGPIPE, &action, NULL) == 0);
	CHECK(shutdown(pair.client, SHUT_RDWR) == 0);
	FAILS(send(pair.client, "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK(pipes == 0);
	FAILS(send(pair.client, "x", 1, 0), EPIPE);
	CHECK(pipes == 1);
}

static void descriptors(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[64];
	int value;
	socklen_t length = sizeof(value);

	CHECK(getsockopt(pair.client, SOL_SOCKET, SO_PROTOCOL, &value, &length) == 0);
	CHECK(value == IPPROTO_QUIC && length == sizeof(value));
	CHECK(getsockopt(pair.client, SOL_SOCKET, SO_TYPE, &value, &length) == 0);
	CHECK(value == SOCK_DGRAM);
	CHECK(getsockopt(pair.listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0);
	CHECK(value == 1);
	struct timeval time = { .tv_usec = 20000 }, kept;
	CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	length = sizeof(kept);
	CHECK(getsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &kept, &length) == 0);
	CHECK(kept.tv_sec == 0 && kept.tv_usec == 20000);
	FAILS(recv(pair.server, data, 1, 0), EAGAIN);
	time.tv_sec = WAIT / 1000;
	CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);

	/* Flags are of the socket; whether exec closes it is of the descriptor. */
	int twin = dup(pair.client);
	CHECK(twin >= 0 && twin != pair.client);
	CHECK((fcntl(twin, F_GETFL) & O_NONBLOCK) == 0);
	CHECK(fcntl(twin, F_SETFL, O_NONBLOCK) == 0);
	CHECK(fcntl(pair.client, F_GETFL) & O_NONBLOCK);
	FAILS(recv(pair.client, data, 1, 0), EAGAIN);
	value = 0;
	CHECK(ioctl(pair.client, FIONBIO, &value) == 0);
	CHECK((fcntl(twin, F_GETFL) & O_NONBLOCK) == 0);
	CHECK(fcntl(twin, F_GETFD) == 0);
	CHECK(fcntl(twin, F_SETFD, FD_CLOEXEC) == 0);
	CHECK(fcntl(twin, F_GETFD) == FD_CLOEXEC && fcntl(pair.client, F_GETFD) == 0);

	/* The socket lives as long as one of its descriptors. */
	CHECK(close(pair.client) == 0);
	CHECK(send(twin, "x", 1, MSG_SYN) == 1);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	int far = fcntl(twin, F_DUPFD, 200);
	CHECK(far >= 200 && close(twin) == 0);
	int null = open("/dev/null", O_RDWR);
	CHECK(null >= 0 && dup2(far, null) == null && close(far) == 0);
	CHECK(send(null, "yz", 2, 0) == 2);
	int count = 0;
	CHECK(recv(pair.server, data, 1, 0) == 1);
	CHECK(ioctl(pair.server, FIONREAD, &count) == 0 && count == 1);
	CHECK(recv(pair.server, data, 1, 0) == 1);

	/* What replaces it ends it. */
	int other = open("/dev/null", O_RDWR);
	CHECK(dup2(other, null) == null);
	CHECK(write(null, "x", 1) == 1);
	FAILS(recv(null, data, 1, 0), ENOTSOCK);
	FAILS(recv(pair.server, data, sizeof(data), 0), ENOTCONN);

	/* A program that closes what it does not know does no harm. */
	struct pair fresh = connected(AF_INET, SOCK_DGRAM);
	for (int fd = 3; fd < 1024; fd++)
		if (fd != fresh.client && fd != fresh.server)
			close(fd);
	CHECK(send(fresh.client, "still", 5, MSG_SYN) == 5);
	CHECK(recv(fresh.server, data, sizeof(data), 0) == 5);
	CHECK(close_range(3, ~0U, 0) == 0);
	FAILS(send(fresh.client, "x", 1, 0), EBADF);
	struct pair again = connected(AF_INET, SOCK_DGRAM);
	CHECK(close(again.client) == 0);
}

static void forks(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[64];
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		FAILS(send(pair.client, "x", 1, MSG_SYN), EBADFD);
		FAILS(recv(pair.server, data, 1, 0), EBADFD);
		FAILS(dup(pair.server), EBADFD);
		/* A listener is shared by the switch, if there is one. */
		FAILS(accept(pair.listener, NULL, NULL), ENOENT);
		const char *(*words)(int, int) =
			(const char *(*)(int, int))dlsym(RTLD_DEFAULT, "quicket_strerror");
		CHECK(strstr(words(pair.listener, ENOENT), "switch") != NULL);
		CHECK(close(pair.client) == 0 && close(pair.server) == 0);
		FAILS(close(pair.client), EBADF);
		/* It can have its own. */
		struct pair own = connected(AF_INET, SOCK_DGRAM);
		CHECK(send(own.client, "own", 3, MSG_SYN) == 3);
		CHECK(recv(own.server, data, sizeof(data), 0) == 3);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(send(pair.client, "on", 2, MSG_SYN) == 2);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 2);
	/* In a child that shares memory as well. */
	child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		close(pair.client);
		close(pair.server);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(send(pair.client, "and on", 6, 0) == 6);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 6);
}

static volatile sig_atomic_t signals_handled;
static volatile sig_atomic_t call_is_over;

static void on_signal(int number)
{
	(void)number;
	signals_handled++;
}

/* Sends signals to a thread until its call is over. */
struct alarm {
	pthread_t thread, thread_of_alarm;
	/* Where to send data after some signals, or -1. */
	int fd;
};

static void *keep_signalling(void *argument)
{
	struct alarm *alarm = argument;
	while (!call_is_over) {
		usleep(2000);
		if (alarm->fd >= 0 && signals_handled >= 5) {
			CHECK(send(alarm->fd, "x", 1, MSG_SYN | MSG_FIN) == 1);
			break;
		}
		CHECK(pthread_kill(alarm->thread, SIGUSR1) == 0);
	}
	return NULL;
}

static void begin_signals(struct alarm *alarm, int flags, int fd)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
	signals_handled = call_is_over = 0;
	alarm->thread = pthread_self();
	alarm->fd = fd;
	CHECK(pthread_create(&alarm->thread_of_alarm, NULL, keep_signalling, alarm) == 0);
}

static void end_signals(struct alarm *alarm)
{
	call_is_over = 1;
	CHECK(pthread_join(alarm->thread_of_alarm, NULL) == 0);
}

static void *receive_one(void *argument)
{
	char data[8];
	CHECK(recv(*(int *)argument, data, sizeof(data), 0) == 1);
	return NULL;
}

static void signals(void)
{
	struct pair pair = connected(AF_INET, SOCK_DGRAM);
	char data[8];
	pthread_t receiver;
	struct alarm alarm;

	/* A signal ends a call that waits ... */
	begin_signals(&alarm, 0, -1);
	FAILS(recv(pair.server, data, sizeof(data), 0), EINTR);
	end_signals(&alarm);
	/* ... also where another thread works for the same address. */
	CHECK(pthread_create(&receiver, NULL, receive_one, &pair.server) == 0);
	usleep(10000);
	begin_signals(&alarm, 0, -1);
	FAILS(accept(pair.listener, NULL, NULL), EINTR);
	end_signals(&alarm);
	CHECK(send(pair.client, "x", 1, MSG_SYN | MSG_FIN) == 1);
	CHECK(pthread_join(receiver, NULL) == 0);

	/* Those that let calls go on do, */
	begin_signals(&alarm, SA_RESTART, pair.client);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 1);
	end_signals(&alarm);
	/* but not those that end by themselves. */
	struct timeval time = { .tv_sec = 30 };
	CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	begin_signals(&alarm, SA_RESTART, -1);
	FAILS(recv(pair.server, data, sizeof(data), 0), EINTR);
	end_signals(&alarm);
	/* A blocked stream tells how much it took. */
	static char much[64 << 20];
	begin_signals(&alarm, 0, -1);
	ssize_t sent = send(pair.client, much, sizeof(much), MSG_SYN);
	CHECK(sent > 0 && sent < (ssize_t)sizeof(much));
	end_signals(&alarm);
}

/* A process that ends without closing its sockets: the peer hears of it at once. */
static void exits(void)
{
	int ends[2];
	struct sockaddr_storage address;
	socklen_t length;
	struct pair pair = { .listener = -1 };
	CHECK(pipe(ends) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		int (*handshake)(int, const char *, const char *, const char *, const char *) =
			(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
				RTLD_DEFAULT, "quicket_client_handshake");
		CHECK(read(ends[0], &length, sizeof(length)) == sizeof(length));
		CHECK(read(ends[0], &address, sizeof(address)) == sizeof(address));
		int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
		CHECK(connect(fd, (struct sockaddr *)&address, length) == 0);
		CHECK(handshake(fd, "localhost", "test", NULL, given("PIN")) == 0);
		CHECK(send(fd, "last", 4, MSG_SYN) == 4);
		exit(0);
	}
	pair.listener = listener(AF_INET, &address, &length);
	CHECK(write(ends[1], &length, sizeof(length)) == sizeof(length));
	CHECK(write(ends[1], &address, sizeof(address)) == sizeof(address));
	serve(&pair);
	char data[8];
	struct timeval time = { .tv_sec = 10 };
	CHECK(setsockopt(pair.server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time)) == 0);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 4);
	FAILS(recv(pair.server, data, sizeof(data), 0), ENOTCONN);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	/* Nothing here takes so long, unless it hangs. */
	alarm(120);
	if (strcmp(what, "sudden") == 0) {
		sudden();
	} else if (strcmp(what, "detours") == 0) {
		detours();
	} else if (strcmp(what, "families") == 0) {
		families();
	} else if (strcmp(what, "transfer") == 0) {
		transfer(AF_INET);
		transfer(AF_INET6);
	} else if (strcmp(what, "polling") == 0) {
		polling();
	} else if (strcmp(what, "flags") == 0) {
		flags();
	} else if (strcmp(what, "errors") == 0) {
		errors();
	} else if (strcmp(what, "descriptors") == 0) {
		descriptors();
	} else if (strcmp(what, "forks") == 0) {
		forks();
	} else if (strcmp(what, "signals") == 0) {
		signals();
	} else if (strcmp(what, "exits") == 0) {
		exits();
	} else {
		fprintf(stderr, "which test?\n");
		return 2;
	}
	puts("passed");
	return 0;
}
