/*
 * One end of a connection with somebody else at the other: streams and datagrams come back as they
 * went. GnuTLS performs the handshake.
 *   echo server                 serves one connection until it ends
 *   echo client ADDRESS PORT    has 60 streams and 10 datagrams echoed
 */
#include "tls.h"

#include <sys/time.h>

#define STREAMS 60
#define LENGTH 3000
#define DATAGRAMS 10
#define DATAGRAM_LENGTH 512
/* A datagram may be lost. */
#define ATTEMPTS 5

static void prepare(int fd)
{
	struct quic_transport_param param = { .max_datagram_frame_size = 1400 };
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, "echo", 4) == 0);
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM, &param, sizeof(param)) == 0);
}

static void server(void)
{
	struct tls_options options = { .is_server = 1, .alpn = "echo" };
	struct sockaddr_storage address;
	socklen_t length;
	char name[INET6_ADDRSTRLEN];
	static char data[65536];
	int64_t id;
	uint32_t flags;
	int listens = prepared_listener(AF_INET6, &address, &length, prepare);
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
	printf("{\"event\":\"listening\",\"address\":\"[%s]:%u\"}\n",
	       inet_ntop(AF_INET6, &v6->sin6_addr, name, sizeof(name)), ntohs(v6->sin6_port));
	fflush(stdout);
	int fd = accept(listens, NULL, NULL);
	CHECK(fd >= 0);
	handshake(session_for(fd, &options));
	for (;;) {
		ssize_t got = recv_from(fd, data, sizeof(data), &id, &flags);
		if (got < 0)
			break;
		if (flags & QUIC_MSG_DATAGRAM)
			CHECK(send(fd, data, (size_t)got, QUIC_MSG_DATAGRAM) == got);
		else
			CHECK(send_on(fd, data, (size_t)got, id, flags & QUIC_STREAM_FLAG_FIN) ==
			      got);
	}
	CHECK(errno == ENOTCONN);
	CHECK(close(fd) == 0 && close(listens) == 0);
}

static char byte_of(int64_t id, size_t at)
{
	return (char)(id * 31 + (int64_t)at * 7 + (int64_t)at / 251);
}

static void echo_streams(int fd)
{
	static char data[LENGTH];
	static size_t received[STREAMS];
	int ended = 0;
	for (int64_t id = 0; id < 4 * STREAMS; id += 4) {
		for (size_t at = 0; at < LENGTH; at++)
			data[at] = byte_of(id, at);
		CHECK(send_on(fd, data, LENGTH, id, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) ==
		      LENGTH);
	}
	while (ended < STREAMS) {
		int64_t id;
		uint32_t flags;
		ssize_t got = recv_from(fd, data, sizeof(data), &id, &flags);
		CHECK(got >= 0 && id % 4 == 0 && id >= 0 && id < 4 * STREAMS);
		size_t *at = &received[id / 4];
		for (ssize_t i = 0; i < got; i++, ++*at)
			CHECK(data[i] == byte_of(id, *at));
		if (flags & QUIC_STREAM_FLAG_FIN) {
			CHECK(*at == LENGTH);
			ended++;
		}
	}
}

static void echo_datagrams(int fd)
{
	struct timeval patience = { .tv_usec = 500000 };
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
	for (int64_t number = 0; number < DATAGRAMS; number++) {
		char data[DATAGRAM_LENGTH], back[DATAGRAM_LENGTH + 1];
		for (size_t at = 0; at < sizeof(data); at++)
			data[at] = byte_of(number, at);
		for (int attempt = 0;; attempt++) {
			int64_t id;
			uint32_t flags;
			CHECK(attempt < ATTEMPTS);
			CHECK(send(fd, data, sizeof(data), QUIC_MSG_DATAGRAM) == sizeof(data));
			ssize_t got = recv_from(fd, back, sizeof(back), &id, &flags);
			if (got == sizeof(data) && memcmp(data, back, sizeof(data)) == 0) {
				CHECK(flags & QUIC_MSG_DATAGRAM);
				break;
			}
			/* Nothing, or an echo that was late. */
			CHECK(got == sizeof(data) || (got < 0 && errno == EAGAIN));
		}
	}
}

static void client(const char *name, const char *port)
{
	struct tls_options options = { .alpn = "echo" };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)atoi(port)) };
	CHECK(inet_pton(AF_INET, name, &address.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(fd >= 0);
	prepare(fd);
	CHECK(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	handshake(session_for(fd, &options));
	echo_streams(fd);
	echo_datagrams(fd);
	CHECK(close(fd) == 0);
}

int main(int count, char **arguments)
{
	alarm(120);
	if (count == 2 && strcmp(arguments[1], "server") == 0) {
		server();
	} else if (count == 4 && strcmp(arguments[1], "client") == 0) {
		client(arguments[2], arguments[3]);
	} else {
		fprintf(stderr, "which end?\n");
		return 2;
	}
	return 0;
}
