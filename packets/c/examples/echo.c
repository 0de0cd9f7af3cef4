/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A stack of its own: answers every datagram of UDP over IPv4 that comes to an address.
 *
 *	quicket switch packets --name ./ports &
 *	cc -Iinclude -o echo echo.c -lquicket_packets_c && ./echo ./ports 127.0.0.1 7000
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <quicket/packets.h>

#define ETHERNET 14
#define IP 20
#define UDP 8

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, quicket_port_error());
	exit(1);
}

static void swap(unsigned char *a, unsigned char *b, size_t len)
{
	while (len-- > 0) {
		unsigned char kept = *a;

		*a++ = *b;
		*b++ = kept;
	}
}

/*
 * Turns a frame around: who sent it is who it is for. Checksums are sums, and stay what they are. The switch has checked
 * lengths and checksums. Returns 0 for what this stack does not know.
 */
static int turn_around(unsigned char *frame, size_t len)
{
	unsigned char *ip = frame + ETHERNET, *udp = ip + IP;

	if (len < ETHERNET + IP + UDP || frame[12] != 8 || frame[13] != 0)
		return 0;
	if (ip[0] != 0x45 || ip[9] != IPPROTO_UDP)
		return 0;
	swap(frame, frame + 6, 6);
	swap(ip + 12, ip + 16, 4);
	swap(udp, udp + 2, 2);
	return 1;
}

/* Answers what has come. */
static void answer(struct quicket_port *port)
{
	int64_t ready = quicket_port_ready(port), room, n;
	uint32_t written = 0;

	if (ready < 0)
		fail("the switch has left what cannot be");
	room = quicket_port_room(port, (uint32_t)ready);
	if (room < 0)
		fail("the switch has left what cannot be");
	for (n = 0; n < ready && written < room; n++) {
		size_t len, longest;
		const void *frame = quicket_port_frame(port, (uint32_t)n, &len);
		unsigned char *slot = quicket_port_slot(port, written, &longest);

		if (frame == NULL || slot == NULL)
			fail("a slot is missing");
		if (len > longest)
			continue;
		memcpy(slot, frame, len);
		if (turn_around(slot, len))
			quicket_port_set_len(port, written++, (uint16_t)len);
	}
	/* What has no room is dropped, as by a network. */
	quicket_port_release(port, (uint32_t)ready);
	if (written > 0 && quicket_port_publish(port, written) != 0)
		fail("the switch has gone");
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct quicket_port *port;
	int s;

	if (argc != 4 || inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "usage: echo SOCKET ADDRESS PORT\n");
		return 2;
	}
	address.sin_port = htons((uint16_t)atoi(argv[3]));
	port = quicket_port_open(argv[1], 256, 256, 2048);
	if (port == NULL)
		fail("no port");
	/* The system says whether this program may have the address; the switch keeps the socket. */
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof(address)) != 0) {
		perror("no address");
		return 1;
	}
	if (quicket_port_register(port, s) != 0)
		fail("the address is not registered");
	close(s);
	puts("ready");
	fflush(stdout);
	while (quicket_port_wait(port, -1) >= 0)
		answer(port);
	quicket_port_close(port);
	return 0;
}
