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
#define recvmsg quicket_recvmsg
#define sendmsg quicket_sendmsg
#define setsockopt quicket_setsockopt
#define socket quicket_socket
#include "../../../preload/tests/programs/pair.h"

#define WAIT 10000

int main(void)
{
	alarm(60);
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

	CHECK(quicket_close(pair.client) == 0);
	FAILS(quicket_recv(pair.server, data, sizeof(data), 0), ENOTCONN);
	CHECK(quicket_close(pair.server) == 0 && quicket_close(pair.listener) == 0);
	puts("passed");
	return 0;
}
