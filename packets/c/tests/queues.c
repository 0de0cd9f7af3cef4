/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A port with three queues, each with a thread that sends back what comes: so many frames, and then it says how many each has had. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <quicket/packets.h>

#define QUEUES 3
#define FRAMES 300

/* A test that takes longer has failed. */
#define SECONDS 60

static atomic_int all;
/* A thread has ended before its time: the others end, too. */
static atomic_int failed;

struct queue {
	struct quicket_port *port;
	pthread_t thread;
	int count;
};

static void *fail(void)
{
	atomic_store(&failed, 1);
	return NULL;
}

static void *echo(void *arg)
{
	struct queue *queue = arg;

	while (atomic_load(&all) < FRAMES && !atomic_load(&failed)) {
		int64_t ready, n;

		if (quicket_port_wait(queue->port, 10) < 0)
			return fail();
		ready = quicket_port_ready(queue->port);
		for (n = 0; n < ready; n++) {
			size_t len;
			const unsigned char *frame = quicket_port_frame(queue->port, n, &len);
			unsigned char copy[2048];

			memcpy(copy, frame, len);
			memcpy(copy + 26, frame + 30, 4);
			memcpy(copy + 30, frame + 26, 4);
			memcpy(copy + 34, frame + 36, 2);
			memcpy(copy + 36, frame + 34, 2);
			if (quicket_port_send(queue->port, copy, len) != (ssize_t)len)
				return fail();
			queue->count++;
			atomic_fetch_add(&all, 1);
		}
		if (ready > 0)
			quicket_port_release(queue->port, ready);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct queue queues[QUEUES] = { 0 };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), n;

	alarm(SECONDS);
	queues[0].port = quicket_port_open(argc > 1 ? argv[1] : "", 64, 64, 2048);
	if (queues[0].port == NULL)
		return 1;
	for (n = 1; n < QUEUES - 1; n++) {
		queues[n].port = quicket_port_add_queue(queues[0].port, 64, 64, 2048);
		if (queues[n].port == NULL)
			return 2;
	}
	if (bind(fd, (struct sockaddr *)&address, len) || getsockname(fd, (struct sockaddr *)&address, &len))
		return 3;
	/* A queue is none that has addresses. */
	if (quicket_port_register(queues[1].port, fd) != -1 || errno != EINVAL)
		return 4;
	if (quicket_port_add_queue(queues[1].port, 64, 64, 2048) != NULL || errno != EINVAL)
		return 5;
	if (quicket_port_add_queue(queues[0].port, 5, 64, 2048) != NULL || errno != EINVAL)
		return 6;
	if (quicket_port_register(queues[0].port, fd) != 0)
		return 7;
	close(fd);
	/* One more, when it has an address. */
	queues[QUEUES - 1].port = quicket_port_add_queue(queues[0].port, 64, 64, 2048);
	if (queues[QUEUES - 1].port == NULL)
		return 8;
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (n = 0; n < QUEUES; n++)
		if (pthread_create(&queues[n].thread, NULL, echo, &queues[n]))
			return 9;
	for (n = 0; n < QUEUES; n++) {
		pthread_join(queues[n].thread, NULL);
		printf("%d ", queues[n].count);
	}
	puts("");
	for (n = 0; n < QUEUES; n++)
		quicket_port_close(queues[n].port);
	return atomic_load(&failed) ? 10 : 0;
}
