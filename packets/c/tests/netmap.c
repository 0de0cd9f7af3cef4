/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What programs for netmap do: wait by poll, take frames, and send them back the other way. */
#include <poll.h>
#include <stdio.h>

#define NETMAP_WITH_LIBS
#include <net/netmap_user.h>

static int count;

static void turn_around(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *frame)
{
	unsigned char copy[2048];

	if (header->len > sizeof(copy) || header->buf != frame)
		return;
	memcpy(copy, frame, header->len);
	memcpy(copy + 26, frame + 30, 4);
	memcpy(copy + 30, frame + 26, 4);
	memcpy(copy + 34, frame + 36, 2);
	memcpy(copy + 36, frame + 34, 2);
	count += nm_inject((struct nm_desc *)arg, copy, header->len) == (int)header->len;
}

int main(int argc, char **argv)
{
	struct nm_desc *d = nm_open(argc > 1 ? argv[1] : "", NULL, 0, NULL);
	struct nm_pkthdr header;
	unsigned char *frame;

	if (d == NULL) {
		printf("%d %s\n", errno, quicket_port_error());
		return 1;
	}
	puts("ready");
	fflush(stdout);
	alarm(60);
	while (count < 10) {
		struct pollfd waits = { .fd = NETMAP_FD(d), .events = POLLIN };

		if (poll(&waits, 1, -1) != 1)
			return 2;
		/* By turns, both ways of taking frames. */
		if (count % 2 == 0)
			nm_dispatch(d, 1, turn_around, (unsigned char *)d);
		else if ((frame = nm_nextpkt(d, &header)) != NULL)
			turn_around((unsigned char *)d, &header, frame);
	}
	printf("%u\n", d->st.ps_recv);
	return nm_close(d);
}
