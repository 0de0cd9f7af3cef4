/* A program that knows QUIC sockets by libquic's functions: both sides of a connection. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <quicket/libquic.h>

#define CHECK(condition)                                                                        \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%d: %s (%s)\n", __LINE__, #condition, strerror(errno));\
			exit(1);                                                                \
		}                                                                               \
	} while (0)

static char last_message[256];

static void on_message(int level, const char *message)
{
	CHECK(level == LOG_ERR);
	snprintf(last_message, sizeof(last_message), "%s", message);
}

static void *serve(void *argument)
{
	int listener = *(int *)argument;
	char data[64];
	int64_t stream = -1;
	uint32_t flags = 0;
	int fd = quicket_accept(listener, NULL, NULL);

	CHECK(fd >= 0);
	CHECK(quic_server_handshake(fd, getenv("KEY"), getenv("CERTIFICATE"), "echo") == 0);
	CHECK(quic_recvmsg(fd, data, sizeof(data), &stream, &flags) == 5);
	CHECK(stream == 0 && (flags & QUIC_STREAM_FLAG_FIN));
	CHECK(quic_sendmsg(fd, data, 5, stream, QUIC_STREAM_FLAG_FIN) == 5);
	CHECK(quic_recvmsg(fd, data, sizeof(data), NULL, NULL) == -1 && errno == ENOTCONN);
	CHECK(quicket_close(fd) == 0);
	return NULL;
}

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	char data[64];
	int64_t stream = -1;
	uint32_t flags = 0;
	pthread_t server;
	int listener = quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);

	alarm(120);
	CHECK(listener >= 0);
	CHECK(quicket_bind(listener, (struct sockaddr *)&address, length) == 0);
	CHECK(quicket_setsockopt(listener, SOL_QUIC, QUIC_SOCKOPT_ALPN, "echo", 4) == 0);
	CHECK(quicket_listen(listener, 1) == 0);
	CHECK(quicket_getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	CHECK(pthread_create(&server, NULL, serve, &listener) == 0);

	int fd = quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(quic_set_log_func(on_message) == NULL && quic_set_log_level(LOG_ERR) == -1);
	CHECK(quic_client_handshake(fd, NULL, "localhost", "echo") == -EINVAL);
	CHECK(strstr(last_message, "handshake") != NULL);
	CHECK(quicket_connect(fd, (struct sockaddr *)&address, length) == 0);
	CHECK(quic_client_handshake(fd, "key", "localhost", "echo") == -EOPNOTSUPP);
	CHECK(quic_client_handshake(fd, NULL, "localhost", "echo") == 0);
	CHECK(quic_sendmsg(fd, "hello", 5, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 5);
	CHECK(quic_recvmsg(fd, data, sizeof(data), &stream, &flags) == 5);
	CHECK(stream == 0 && (flags & QUIC_STREAM_FLAG_FIN) && memcmp(data, "hello", 5) == 0);
	flags = MSG_DONTWAIT;
	CHECK(quic_recvmsg(fd, data, sizeof(data), &stream, &flags) == -1 && errno == EAGAIN);
	CHECK(quicket_close(fd) == 0);
	CHECK(pthread_join(server, NULL) == 0);
	CHECK(quicket_close(listener) == 0);
	puts("passed");
	return 0;
}
