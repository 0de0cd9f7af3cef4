/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Programs for netmap that wait before they look, and look at less than there is: by poll, ppoll, select and epoll. No wait ends by time. The
 * first argument is the name, the second one how many frames come; with `full`, the program fills the ring of sending and waits for room.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>

#define NETMAP_WITH_LIBS
#include <net/netmap.h>
#include <net/netmap_user.h>

static unsigned int count;

static void take(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *frame)
{
	/* The frames have numbers. */
	if (header->len < 46 || memcmp(frame + 42, &count, sizeof(count)) != 0)
		exit(3);
	count++;
	(void)arg;
}

/* Waits by one of four ways. Returns whether there is something. */
static int waits(int way, int fd, int events, int milliseconds)
{
	struct timespec time = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
	struct pollfd one = {.fd = fd, .events = (short)events};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (way == 0)
		return poll(&one, 1, milliseconds) == 1;
	if (way == 1)
		return ppoll(&one, 1, milliseconds < 0 ? NULL : &time, NULL) == 1;
	if (way == 2)
		return pselect(fd + 1, events == POLLIN ? &set : NULL, events == POLLOUT ? &set : NULL, NULL,
			       milliseconds < 0 ? NULL : &time, NULL) == 1;
	static int all = -1;
	struct epoll_event event = {.events = (uint32_t)events}, came;

	if (all < 0) {
		all = epoll_create1(0);
		if (all < 0 || epoll_ctl(all, EPOLL_CTL_ADD, fd, &event) != 0)
			exit(4);
	}
	return epoll_ctl(all, EPOLL_CTL_MOD, fd, &event) == 0 && epoll_wait(all, &came, 1, milliseconds) == 1;
}

static int receive(struct nm_desc *d, unsigned int frames)
{
	struct nm_pkthdr header;
	unsigned char *frame;
	int way = 0;

	for (; count < frames; way++) {
		unsigned int before = count;

		if (!waits(way % 4, NETMAP_FD(d), POLLIN, -1))
			return 5;
		/* All of them only once in a while. */
		if (way % 3 == 0) {
			if ((frame = nm_nextpkt(d, &header)) != NULL)
				take(NULL, &header, frame);
		} else {
			nm_dispatch(d, way % 7 == 0 ? -1 : way % 3, take, NULL);
		}
		if (way % 5 == 0 && count == before + 1 && d->st.ps_recv != count)
			return 6;
	}
	/* Then it is not readable: not for longer than for a ring that came late. */
	while (waits(0, NETMAP_FD(d), POLLIN, 0))
		if (nm_nextpkt(d, &header) != NULL)
			return 7;
	return 0;
}

static int fill(struct nm_desc *d)
{
	unsigned char frame[60] = {0};
	int way, sent = 0;

	/* When the switch has been stopped. */
	getchar();
	if (!waits(0, NETMAP_FD(d), POLLOUT, 0))
		return 8;
	while (nm_inject(d, frame, sizeof(frame)) == (int)sizeof(frame))
		sent++;
	for (way = 0; way < 4; way++)
		if (waits(way, NETMAP_FD(d), POLLOUT, way))
			return 9;
	printf("full %d\n", sent);
	fflush(stdout);
	/* Each time that it was writable for nothing, the switch has looked. */
	do {
		if (!waits(way++ % 4, NETMAP_FD(d), POLLOUT, -1))
			return 10;
	} while (nm_inject(d, frame, sizeof(frame)) == 0);
	return ioctl(NETMAP_FD(d), NIOCTXSYNC, NULL) == 0 ? 0 : 11;
}

int main(int argc, char **argv)
{
	struct nm_desc *d = nm_open(argc > 1 ? argv[1] : "", NULL, 0, NULL);
	int result;

	alarm(60);
	if (d == NULL || (d->req.nr_ringid & NETMAP_SW_RING) || d->first_rx_ring != d->last_rx_ring || argc < 3) {
		D("%s", quicket_port_error());
		return 1;
	}
	ND("not shown");
	puts("ready");
	fflush(stdout);
	result = strcmp(argv[2], "full") == 0 ? fill(d) : receive(d, (unsigned int)atoi(argv[2]));
	printf("%d\n", result);
	nm_close(d);
	return result;
}
