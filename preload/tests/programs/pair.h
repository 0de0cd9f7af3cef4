/* Two ends of a connection in one process, through nothing but the system's calls. */
#ifndef PAIR_H
#define PAIR_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <quicket/quic.h>

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__,       \
				#condition, errno, strerror(errno));                            \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

/* The call fails with this error. */
#define FAILS(call, error)                                                                      \
	do {                                                                                    \
		errno = 0;                                                                      \
		long answer_ = (long)(call);                                                    \
		int errno_ = errno;                                                             \
		if (answer_ != -1 || errno_ != (error)) {                                       \
			fprintf(stderr, "%s:%d: %s gives %ld, errno %d (%s), not %d\n",         \
				__FILE__, __LINE__, #call, answer_, errno_, strerror(errno_),   \
				(error));                                                       \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

struct pair {
	int listener;
	int client;
	int server;
	/* What is done with a connection before its handshake, or NULL. */
	void (*accepted)(int);
	/* The family of the client's socket, if it is not that of the address. */
	int family;
};

/* What the environment of the test says. */
static inline const char *given(const char *name)
{
	const char *value = getenv(name);
	CHECK(value != NULL);
	return value;
}

/* A listener; `prepare` sets what else it should be. */
static inline int prepared_listener(int family, struct sockaddr_storage *address,
				    socklen_t *length, void (*prepare)(int))
{
	int fd = socket(family, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(fd >= 0);
	memset(address, 0, sizeof(*address));
	if (family == AF_INET) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)address;
		v4->sin_family = AF_INET;
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		*length = sizeof(*v4);
	} else {
		struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
		v6->sin6_family = AF_INET6;
		v6->sin6_addr = in6addr_loopback;
		*length = sizeof(*v6);
	}
	CHECK(bind(fd, (struct sockaddr *)address, *length) == 0);
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, "test", 4) == 0);
	if (prepare != NULL)
		prepare(fd);
	CHECK(listen(fd, 8) == 0);
	*length = sizeof(*address);
	CHECK(getsockname(fd, (struct sockaddr *)address, length) == 0);
	return fd;
}

static inline int listener(int family, struct sockaddr_storage *address, socklen_t *length)
{
	return prepared_listener(family, address, length, NULL);
}

static inline void *serve(void *argument)
{
	int (*handshake)(int, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_server_handshake");
	CHECK(handshake != NULL);
	struct pair *pair = argument;
	pair->server = accept(pair->listener, NULL, NULL);
	CHECK(pair->server >= 0);
	if (pair->accepted != NULL)
		pair->accepted(pair->server);
	CHECK(handshake(pair->server, given("KEY"), given("CERTIFICATE"), "test") == 0);
	return NULL;
}

/* A connection of the pair's listener, by an address that leads there; `prepare` sets it up. */
static inline void connect_pair(struct pair *pair, int type, const struct sockaddr_storage *address,
				socklen_t length, void (*prepare)(int))
{
	int (*handshake)(int, const char *, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *, const char *))dlsym(
			RTLD_DEFAULT, "quicket_client_handshake");
	CHECK(handshake != NULL);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve, pair) == 0);
	pair->client = socket(pair->family != 0 ? pair->family : address->ss_family, type,
			      IPPROTO_QUIC);
	CHECK(pair->client >= 0);
	if (prepare != NULL)
		prepare(pair->client);
	CHECK(connect(pair->client, (const struct sockaddr *)address, length) == 0);
	CHECK(handshake(pair->client, "localhost", "test", NULL, given("PIN")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* A connection, established on both sides, which `prepare` has set up. */
static inline struct pair prepared_pair(int family, int type, void (*prepare)(int))
{
	struct sockaddr_storage address;
	socklen_t length;
	struct pair pair = {
		.listener = prepared_listener(family, &address, &length, prepare),
	};
	connect_pair(&pair, type, &address, length, prepare);
	return pair;
}

static inline struct pair connected(int family, int type)
{
	return prepared_pair(family, type, NULL);
}

/* Sends with a control message of SOL_QUIC. */
static inline ssize_t send_with(int fd, const void *data, size_t length, int type,
				const void *info, size_t size, int flags)
{
	union {
		char bytes[CMSG_SPACE(64)];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = (void *)data, .iov_len = length };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_SPACE(size),
	};
	CHECK(message.msg_controllen <= sizeof(control));
	memset(&control, 0, sizeof(control));
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_QUIC;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(header), info, size);
	return sendmsg(fd, &message, flags);
}

/* Sends data of a stream. */
static inline ssize_t send_on(int fd, const void *data, size_t length, int64_t id, uint32_t flags)
{
	struct quic_stream_info info = { .stream_id = id, .stream_flags = flags };
	return send_with(fd, data, length, QUIC_STREAM_INFO, &info, sizeof(info), MSG_NOSIGNAL);
}

/* Receives, and says from which stream and with which flags. */
static inline ssize_t recv_from(int fd, void *data, size_t length, int64_t *id, uint32_t *flags)
{
	union {
		char bytes[CMSG_SPACE(sizeof(struct quic_stream_info))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = data, .iov_len = length };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t received = recvmsg(fd, &message, 0);
	*id = -1;
	*flags = (uint32_t)message.msg_flags;
	struct cmsghdr *header = received < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (header != NULL && header->cmsg_level == SOL_QUIC &&
	    header->cmsg_type == QUIC_STREAM_INFO) {
		struct quic_stream_info info;
		memcpy(&info, CMSG_DATA(header), sizeof(info));
		*id = info.stream_id;
		*flags |= info.stream_flags;
	}
	return received;
}

#endif
