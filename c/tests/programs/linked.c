/* A program that is linked to the library, and mixes its sockets with others of the system. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <quicket/quicket.h>

/* What follows was written for the system's own names. */
#define accept quicket_accept
#define bind quicket_bind
#define close quicket_close
#define connect quicket_connect
#define getsockname quicket_getsockname
#define listen quicket_listen
#define recv quicket_recv
#define recvmsg quicket_recvmsg
#define sendmsg quicket_sendmsg
#define setsockopt quicket_setsockopt
#define socket quicket_socket
#include "../../../preload/tests/programs/pair.h"

#define WAIT 10000

static void *serve_early(void *argument)
{
	struct pair *pair = argument;
	pair->server = accept(pair->listener, NULL, NULL);
	CHECK(quicket_server_early_handshake(pair->server, given("KEY"), given("CERTIFICATE"),
					     "test") == 0);
	return NULL;
}

/* A session of one connection is resumed by another, with early data. */
static void sessions(void)
{
	struct sockaddr_storage address;
	socklen_t length;
	static char session[65536];
	char data[64];
	size_t size = sizeof(session), little = 8;
	struct pair pair = { .listener = listener(AF_INET6, &address, &length) };
	FAILS(quicket_session_get_data(pair.listener, session, &size), EINVAL);
	FAILS(quicket_session_set_data(pair.listener, session, 64), EINVAL);
	pthread_t thread;
	pair.client = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(connect(pair.client, (struct sockaddr *)&address, length) == 0);
	CHECK(pthread_create(&thread, NULL, serve_early, &pair) == 0);
	CHECK(quicket_client_handshake(pair.client, "localhost", "test", NULL, given("PIN")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(quicket_session_get_alpn(pair.server, data, &little) == 0 && little == 4);
	CHECK(memcmp(data, "test", 4) == 0);
	little = 3;
	FAILS(quicket_session_get_alpn(pair.client, data, &little), ENOBUFS);
	CHECK(little == 4);
	for (size = 0; size == 0; usleep(1000)) {
		size = sizeof(session);
		CHECK(quicket_session_get_data(pair.client, session, &size) == 0);
	}
	little = 1;
	FAILS(quicket_session_get_data(pair.client, session, &little), ENOBUFS);
	CHECK(little == size);
	FAILS(quicket_session_get_data(pair.client, (void *)8, &size), EFAULT);
	FAILS(quicket_session_get_data(pair.client, session, NULL), EFAULT);
	FAILS(quicket_session_get_data(pair.server, session, &size), EINVAL);
	FAILS(quicket_session_set_data(pair.client, session, size), EINVAL);
	CHECK(close(pair.client) == 0 && close(pair.server) == 0);

	int client = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC);
	FAILS(quicket_session_set_data(client, session, 0), EINVAL);
	FAILS(quicket_session_set_data(client, (void *)8, size), EFAULT);
	CHECK(quicket_session_set_data(client, session, size) == 0);
	CHECK(connect(client, (struct sockaddr *)&address, length) == 0);
	CHECK(quicket_client_early_handshake(client, "localhost", "test", NULL, given("PIN")) == 0);
	CHECK(send_on(client, "early", 5, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 5);
	serve_early(&pair);
	CHECK(quicket_continue_handshake(client) == 0);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 5 && memcmp(data, "early", 5) == 0);
	CHECK(close(client) == 0 && close(pair.server) == 0 && close(pair.listener) == 0);
}

static void ask_for_workers(int listener)
{
	uint32_t count = 3, wrong = 257;
	FAILS(setsockopt(listener, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &wrong, sizeof(wrong)), EINVAL);
	FAILS(setsockopt(listener, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &count, 2), EINVAL);
	CHECK(setsockopt(listener, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &count, sizeof(count)) == 0);
}

/* One address, three workers: whichever has a client, the program sees sockets. */
static void workers(void)
{
	struct sockaddr_storage address = { 0 };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
	socklen_t length = sizeof(*v4), size = sizeof(uint32_t);
	uint32_t count = 0;
	struct pair pairs[8];
	char data[64];
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
	ask_for_workers(listener);
	v4->sin_family = AF_INET;
	v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(bind(listener, (struct sockaddr *)&address, length) == 0);
	CHECK(setsockopt(listener, SOL_QUIC, QUIC_SOCKOPT_ALPN, "test", 4) == 0);
	CHECK(listen(listener, 8) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	CHECK(quicket_getsockopt(listener, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &count, &size) == 0);
	CHECK(count == 3 && size == sizeof(count));
	FAILS(setsockopt(listener, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &count, size), EINVAL);
	for (int i = 0; i < 8; i++) {
		pairs[i] = (struct pair){ .listener = listener };
		connect_pair(&pairs[i], SOCK_STREAM, &address, length, NULL);
	}
	CHECK(close(listener) == 0);
	for (int i = 0; i < 8; i++) {
		struct pollfd readable = { .fd = pairs[i].server, .events = POLLIN };
		CHECK(send_on(pairs[i].client, "hello", 5, -1, QUIC_STREAM_FLAG_NEW) == 5);
		CHECK(quicket_poll(&readable, 1, WAIT) == 1 && readable.revents == POLLIN);
		CHECK(recv(pairs[i].server, data, sizeof(data), 0) == 5);
		CHECK(close(pairs[i].client) == 0 && close(pairs[i].server) == 0);
	}
}

/* What the option takes. Nobody is there to start as the switch: programs that share are tests of the
 * program quicket. */
static void sharing(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char name[128];
	socklen_t size = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
	memset(name, 'x', sizeof(name));
	CHECK(quicket_getsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, name, &size) == 0 && size == 0);
	FAILS(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, name, 65), EINVAL);
	FAILS(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, "a\nb", 3), EINVAL);
	FAILS(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, "\xff", 1), EINVAL);
	CHECK(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, name, 64) == 0);
	CHECK(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, "", 0) == 0);
	size = sizeof(name);
	CHECK(quicket_getsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, name, &size) == 0);
	CHECK(size > 0 && memcmp(name, "linked-program", 14) == 0);
	size = 3;
	FAILS(quicket_getsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, name, &size), EINVAL);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	FAILS(bind(fd, (struct sockaddr *)&address, sizeof(address)), ENOENT);
	CHECK(strstr(quicket_strerror(fd, ENOENT), "/nonexistent/quicket"));
	CHECK(close(fd) == 0);

	/* One that is bound has an address of its own for good. */
	fd = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
	CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	FAILS(setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, "late", 4), EINVAL);
	CHECK(close(fd) == 0);
}

/* What the option takes, and that connections work with it: clients whose networks come and go are in tests/moves. */
static void following(void)
{
	struct sockaddr_storage address;
	struct pair pair = { 0 };
	socklen_t length, size = sizeof(uint32_t);
	uint32_t follows = 7, wanted = 1, not_wanted = 0;
	char data[64];
	int client = socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(quicket_getsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &follows, &size) == 0);
	CHECK(follows == 0 && size == sizeof(follows));
	FAILS(setsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &wanted, 3), EINVAL);
	CHECK(setsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &wanted, size) == 0);
	CHECK(quicket_getsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &follows, &size) == 0);
	CHECK(follows == 1);

	pthread_t thread;
	pair.listener = listener(AF_INET, &address, &length);
	pair.client = client;
	CHECK(connect(client, (struct sockaddr *)&address, length) == 0);
	FAILS(setsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &not_wanted, size), EINVAL);
	CHECK(quicket_getsockopt(client, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &follows, &size) == 0);
	CHECK(follows == 1);
	CHECK(pthread_create(&thread, NULL, serve_early, &pair) == 0);
	CHECK(quicket_client_handshake(client, "localhost", "test", NULL, given("PIN")) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(send_on(client, "hello", 5, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 5);
	CHECK(recv(pair.server, data, sizeof(data), 0) == 5 && memcmp(data, "hello", 5) == 0);
	CHECK(close(client) == 0 && close(pair.server) == 0 && close(pair.listener) == 0);
}

int main(void)
{
	alarm(60);
	sessions();
	workers();
	sharing();
	following();
	struct pair pair = connected(AF_INET, SOCK_STREAM);
	char data[64];
	int64_t id;
	uint32_t flags;
	int pipes[2];
	CHECK(pipe(pipes) == 0);

	struct pollfd both[2] = {
		{ .fd = pair.server, .events = POLLIN },
		{ .fd = pipes[0], .events = POLLIN },
	};
	CHECK(quicket_poll(both, 2, 0) == 0);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(quicket_poll(both, 2, WAIT) == 1 && both[1].revents == POLLIN);
	CHECK(read(pipes[0], data, 1) == 1);
	CHECK(send_on(pair.client, "hello", 5, -1, QUIC_STREAM_FLAG_NEW) == 5);
	CHECK(quicket_poll(both, 2, WAIT) == 1 && both[0].revents == POLLIN);

	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, told;
	CHECK(quicket_epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event) == 0);
	CHECK(epoll_wait(epoll, &told, 1, WAIT) == 1);
	CHECK(recv_from(pair.server, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 0 && memcmp(data, "hello", 5) == 0);
	CHECK(quicket_poll(both, 2, 0) == 0);

	/* It knows only its own. */
	FAILS(quicket_recv(pipes[0], data, 1, 0), EBADF);
	FAILS(quicket_close(pipes[0]), EBADF);
	FAILS(quicket_recv(-1, data, 1, 0), EBADF);
	FAILS(quicket_socket(AF_INET, SOCK_DGRAM, 0), EPROTONOSUPPORT);

	FAILS(quicket_server_handshake(pair.listener, "/nowhere", "/nowhere", NULL), EINVAL);
	CHECK(strstr(quicket_strerror(pair.listener, EINVAL), "Invalid argument: /nowhere: No such file"));
	CHECK(strcmp(quicket_strerror(pair.server, EPROTO), "Protocol error") == 0);
	CHECK(strcmp(quicket_strerror(-1, EPROTO), "Protocol error") == 0);

	CHECK(quicket_close(pair.client) == 0);
	FAILS(quicket_recv(pair.server, data, sizeof(data), 0), ENOTCONN);
	CHECK(strstr(quicket_strerror(pair.server, ENOTCONN), ": closed by the peer's application"));
	CHECK(quicket_close(pair.server) == 0 && quicket_close(pair.listener) == 0);
	puts("passed");
	return 0;
}
