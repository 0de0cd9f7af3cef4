/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program for netmap with threads, in the way of those: the first one has the descriptor that was opened for all, and each other
 * one a descriptor with a copy of that as its parent. Each sends back what comes to it. One thread closes its descriptor before the others.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>

#define THREADS 2
#define SECONDS 60

static atomic_int all, failed;
static int frames;

struct thread {
	pthread_t number;
	struct nm_desc *nmd;
	int count;
};

static void turn_around(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *frame)
{
	struct thread *t = (struct thread *)arg;
	unsigned char copy[2048];

	if (header->len > sizeof(copy))
		return;
	memcpy(copy, frame, header->len);
	memcpy(copy + 26, frame + 30, 4);
	memcpy(copy + 30, frame + 26, 4);
	memcpy(copy + 34, frame + 36, 2);
	memcpy(copy + 36, frame + 34, 2);
	if (nm_inject(t->nmd, copy, header->len) != (int)header->len)
		atomic_store(&failed, 1);
	t->count++;
	atomic_fetch_add(&all, 1);
}

static void *body(void *data)
{
	struct thread *t = (struct thread *)data;

	while (atomic_load(&all) < frames && !atomic_load(&failed)) {
		struct pollfd waits = {.fd = NETMAP_FD(t->nmd), .events = POLLIN};

		if (poll(&waits, 1, 10) < 0)
			atomic_store(&failed, 1);
		nm_dispatch(t->nmd, 0, turn_around, (unsigned char *)t);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	struct thread threads[THREADS] = {0};
	struct nm_desc *other;
	char text[4096];
	int i;

	alarm(SECONDS);
	frames = argc > 2 ? atoi(argv[2]) : 0;
	threads[0].nmd = nm_open(name, NULL, 0, NULL);
	if (threads[0].nmd == NULL) {
		printf("%d %s\n", errno, quicket_port_error());
		return 1;
	}
	/* Without a parent it is another port, whose address is taken. */
	if (nm_open(name, NULL, 0, NULL) != NULL || errno != EADDRINUSE)
		return 2;
	for (i = 0; i < THREADS; i++) {
		struct thread *t = &threads[i];

		if (i > 0) {
			struct nm_desc nmd = *threads[0].nmd; /* a copy, with another ring */

			nmd.self = &nmd;
			nmd.req.nr_flags = (nmd.req.nr_flags & ~NR_REG_MASK) | NR_REG_ONE_NIC;
			nmd.req.nr_ringid = (uint16_t)i;
			t->nmd = nm_open(name, NULL, NM_OPEN_IFNAME | NM_OPEN_NO_MMAP, &nmd);
			if (t->nmd == NULL || t->nmd->fd == threads[0].nmd->fd || t->nmd->req.nr_ringid != i)
				return 3;
		}
		/* The first one is at work while others are opened. */
		if (pthread_create(&t->number, NULL, body, t) != 0)
			return 4;
	}
	puts("ready");
	fflush(stdout);
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i].number, NULL);
		printf("%d ", threads[i].count);
	}
	puts("");
	if (atomic_load(&failed))
		return 5;
	/* By its name, with a ring behind it; who closes the port before leaves it to others. */
	snprintf(text, sizeof(text), "%s-7", name);
	other = nm_open(text, NULL, 0, threads[1].nmd);
	if (other == NULL || nm_close(threads[0].nmd) != 0 || nm_close(threads[1].nmd) != 0)
		return 6;
	if (nm_nextpkt(other, &other->hdr) != NULL || nm_inject(other, text, 60) != 60)
		return 7;
	if (nm_close(other) != 0)
		return 8;
	/* Then the address is free. */
	for (i = 0; (other = nm_open(text, NULL, 0, NULL)) == NULL; i++) {
		if (i > 5000 || errno != EADDRINUSE)
			return 9;
		usleep(1000);
	}
	return nm_close(other);
}
