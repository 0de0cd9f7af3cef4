/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Serves a port that it shares with other programs, as it asks for itself. Answers each stream with its
 * name and what it was sent. With a number, takes the protocols and gives them up so often, and ends.
 * With "fork" it has a child, which closes the listener, says CHILD with its process and how it cannot accept
 * then, and stays until it is killed. With "exit" it ends by exit(3) with its listener open.
 *
 *     share NAME PORT PROTOCOLS [NUMBER | fork | exit]
 *
 * PROTOCOLS separated by commas, or - for none. Says READY with its address, or REFUSED with the error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <quicket/quicket.h>

#define MOST_STREAMS 64
#define MOST_BYTES 4096

static const char *name, *protocols, *how = "";

static struct question {
	int64_t stream;
	size_t length;
	char text[MOST_BYTES];
} empty;

static void refused(int fd, const char *call)
{
	int error = errno;
	printf("REFUSED %s %s: %s\n", strerrorname_np(error), call, quicket_strerror(fd, error));
	exit(1);
}

static void send_answer(int fd, const struct question *question)
{
	char text[MOST_BYTES + 128];
	int length = snprintf(text, sizeof(text), "%s:%.*s", name, (int)question->length, question->text);
	struct quic_stream_info info = {
		.stream_id = question->stream,
		.stream_flags = QUIC_STREAM_FLAG_FIN,
	};
	union {
		char bytes[CMSG_SPACE(sizeof(info))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec part = { .iov_base = text, .iov_len = (size_t)length };
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
	quicket_sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* Receives a part of a question; false at the end of the connection. */
static int receive(int fd, struct question *questions)
{
	char data[MOST_BYTES];
	struct quic_stream_info info;
	union {
		char bytes[CMSG_SPACE(sizeof(info))];
		struct cmsghdr align;
	} control;
	struct iovec part = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t length = quicket_recvmsg(fd, &message, 0);
	struct cmsghdr *header = length < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (header == NULL || header->cmsg_level != SOL_QUIC || header->cmsg_type != QUIC_STREAM_INFO)
		return 0;
	memcpy(&info, CMSG_DATA(header), sizeof(info));
	struct question *question = &questions[(info.stream_id / 4) % MOST_STREAMS];
	if (question->stream != info.stream_id)
		*question = empty;
	question->stream = info.stream_id;
	if (question->length + (size_t)length > sizeof(question->text))
		return 0;
	memcpy(question->text + question->length, data, (size_t)length);
	question->length += (size_t)length;
	if (info.stream_flags & QUIC_STREAM_FLAG_FIN) {
		send_answer(fd, question);
		*question = empty;
	}
	return 1;
}

static void *answer(void *argument)
{
	int fd = (int)(intptr_t)argument;
	struct question *questions = calloc(MOST_STREAMS, sizeof(*questions));
	if (questions != NULL &&
	    quicket_server_handshake(fd, getenv("KEY"), getenv("CERTIFICATE"), protocols) == 0) {
		while (receive(fd, questions))
			;
	}
	free(questions);
	quicket_close(fd);
	return NULL;
}

static void *ends_with_its_input(void *argument)
{
	char byte;
	while (read(0, &byte, 1) > 0)
		;
	if (strcmp(how, "exit") == 0)
		exit(0);
	_exit(0);
	return argument;
}

/* A listener for the name that the environment gives as PROGRAM. */
static int listener(struct sockaddr_in *address)
{
	const char *program = getenv("PROGRAM");
	uint32_t workers = 2;
	int fd = quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	if (fd < 0)
		refused(fd, "socket");
	if (quicket_setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_WORKERS, &workers, sizeof(workers)) != 0)
		refused(fd, "setsockopt");
	if (quicket_setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_SWITCH, program,
			       (socklen_t)strlen(program)) != 0)
		refused(fd, "setsockopt");
	if (quicket_bind(fd, (struct sockaddr *)address, sizeof(*address)) != 0)
		refused(fd, "bind");
	if (protocols != NULL && quicket_setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, protocols,
						    (socklen_t)strlen(protocols)) != 0)
		refused(fd, "setsockopt");
	if (quicket_listen(fd, 64) != 0)
		refused(fd, "listen");
	return fd;
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	pthread_t thread;
	if (count < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	name = arguments[1];
	address.sin_port = htons((uint16_t)atoi(arguments[2]));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	protocols = strcmp(arguments[3], "-") == 0 ? NULL : arguments[3];
	if (count > 4)
		how = arguments[4];
	for (int times = atoi(how); times > 0; times--) {
		if (quicket_close(listener(&address)) != 0)
			refused(-1, "close");
		if (times == 1) {
			puts("GONE");
			return 0;
		}
	}
	int fd = listener(&address);
	quicket_getsockname(fd, (struct sockaddr *)&address, &length);
	if (strcmp(how, "fork") == 0 && fork() == 0) {
		quicket_close(fd);
		quicket_accept(fd, NULL, NULL);
		printf("CHILD %d %s\n", (int)getpid(), strerrorname_np(errno));
		for (;;)
			pause();
	}
	pthread_create(&thread, NULL, ends_with_its_input, NULL);
	printf("READY 127.0.0.1:%d\n", ntohs(address.sin_port));
	for (;;) {
		int connection = quicket_accept(fd, NULL, NULL);
		if (connection < 0)
			refused(fd, "accept");
		pthread_create(&thread, NULL, answer, (void *)(intptr_t)connection);
		pthread_detach(thread);
	}
}
