/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A server of processes: binds, listens, forks, and each child accepts a client at a time, whose streams it
 * answers with the number of its process and what it was sent. It knows nothing of how its sockets are made.
 *
 *     prefork PORT PROTOCOL CHILDREN wait | close | exit | serve
 *
 * Then the parent waits for its children, closes the listener and waits, exits, or serves a client that it has
 * accepted before it forks. It says READY with its
 * address, and children CHILD with their process. Where the environment names a file as LATE, a child accepts
 * once that is there; where it has POLLS, children poll, and do not wait in accept. SIGUSR1 has a process close the listener, and say CLOSED; a parent goes on to serve its
 * client then. All end with their input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <quicket/quic.h>

#define MOST_BYTES 4096

static const char *protocol;
static volatile sig_atomic_t closes;
/* The parent's, while it serves a client. */
static int kept = -1;

static void fail(const char *call)
{
	printf("FAILED %s: %s\n", call, strerrorname_np(errno));
	exit(1);
}

static void on_signal(int number)
{
	(void)number;
	closes = 1;
}

static void *ends_with_its_input(void *argument)
{
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	_exit(0);
	return argument;
}

/* A thread that no signal interrupts. */
static void end_with_the_input(void)
{
	pthread_t thread;
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&thread, NULL, ends_with_its_input, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void send_answer(int fd, int64_t stream, const char *question, size_t length)
{
	char text[MOST_BYTES + 128];
	int written = snprintf(text, sizeof(text), "%d:%.*s", (int)getpid(), (int)length, question);
	struct quic_stream_info info = { .stream_id = stream, .stream_flags = QUIC_STREAM_FLAG_FIN };
	union {
		char bytes[CMSG_SPACE(sizeof(info))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { .iov_base = text, .iov_len = (size_t)written };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_QUIC;
	header->cmsg_type = QUIC_STREAM_INFO;
	header->cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(header), &info, sizeof(info));
	sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void close_listener(int fd)
{
	if (close(fd) != 0)
		fail("close");
	printf("CLOSED %d\n", (int)getpid());
}

/* Serves a client that asks one question at a time, until it goes. */
static void serve(int fd)
{
	int (*handshake)(int, const char *, const char *, const char *) =
		(int (*)(int, const char *, const char *, const char *))dlsym(RTLD_DEFAULT,
									       "quicket_server_handshake");
	char question[MOST_BYTES];
	size_t length = 0;
	if (handshake == NULL || handshake(fd, getenv("KEY"), getenv("CERTIFICATE"), protocol) != 0)
		return;
	for (;;) {
		struct quic_stream_info info;
		union {
			char bytes[CMSG_SPACE(sizeof(info))];
			struct cmsghdr align;
		} control;
		struct iovec part = { .iov_base = question + length,
				      .iov_len = sizeof(question) - length };
		struct msghdr message = {
			.msg_iov = &part,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		ssize_t received = recvmsg(fd, &message, 0);
		if (received < 0 && errno == EINTR) {
			/* The signal may come more than once. */
			if (closes && kept >= 0) {
				int listener = kept;
				kept = -1;
				close_listener(listener);
			}
			continue;
		}
		struct cmsghdr *header = received < 0 ? NULL : CMSG_FIRSTHDR(&message);
		if (header == NULL || header->cmsg_type != QUIC_STREAM_INFO)
			return;
		memcpy(&info, CMSG_DATA(header), sizeof(info));
		length += (size_t)received;
		if (info.stream_flags & QUIC_STREAM_FLAG_FIN) {
			send_answer(fd, info.stream_id, question, length);
			length = 0;
		}
	}
}

static void close_and_stay(int fd)
{
	close_listener(fd);
	for (;;)
		pause();
}

/* Never waits in accept, and tells when it would have had to for the first time. */
static int accept_by_polling(int fd)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN };
	static int told;
	if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		fail("fcntl");
	for (;;) {
		int connection = accept(fd, NULL, NULL);
		if (connection >= 0 || errno != EAGAIN)
			return connection;
		if (!told)
			printf("AGAIN %d\n", (int)getpid());
		told = 1;
		if (poll(&polled, 1, -1) < 0)
			return -1;
	}
}

static void work(int fd)
{
	int polls = getenv("POLLS") != NULL;
	const char *late = getenv("LATE");
	end_with_the_input();
	printf("CHILD %d\n", (int)getpid());
	while (late != NULL && access(late, F_OK) != 0 && !closes)
		usleep(2000);
	for (;;) {
		int connection = closes ? -1 : polls ? accept_by_polling(fd) : accept(fd, NULL, NULL);
		if (connection < 0 && (closes || errno == EINTR))
			close_and_stay(fd);
		if (connection < 0)
			fail("accept");
		serve(connection);
		close(connection);
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	struct sigaction action = { .sa_handler = on_signal };
	if (count < 5)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	address.sin_port = htons((uint16_t)atoi(arguments[1]));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	protocol = arguments[2];
	sigaction(SIGUSR1, &action, NULL);
	int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_QUIC);
	if (fd < 0)
		fail("socket");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		fail("bind");
	if (setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, protocol, (socklen_t)strlen(protocol)) != 0)
		fail("setsockopt");
	if (listen(fd, 64) != 0)
		fail("listen");
	if (getsockname(fd, (struct sockaddr *)&address, &length) != 0)
		fail("getsockname");
	int served = -1;
	if (strcmp(arguments[4], "serve") == 0) {
		printf("READY 127.0.0.1:%d\n", ntohs(address.sin_port));
		served = accept(fd, NULL, NULL);
		if (served < 0)
			fail("accept");
	}
	for (int number = atoi(arguments[3]); number > 0; number--) {
		pid_t child = fork();
		if (child < 0)
			fail("fork");
		if (child == 0)
			work(fd);
	}
	if (strcmp(arguments[4], "close") == 0 && close(fd) != 0)
		fail("close");
	if (served < 0)
		printf("READY 127.0.0.1:%d\n", ntohs(address.sin_port));
	if (strcmp(arguments[4], "exit") == 0)
		exit(0);
	end_with_the_input();
	if (served >= 0) {
		kept = fd;
		serve(served);
		close(served);
		if (kept < 0)
			for (;;)
				pause();
	}
	while (!closes && (wait(NULL) > 0 || errno == EINTR))
		;
	while (!closes)
		pause();
	close_and_stay(fd);
}
