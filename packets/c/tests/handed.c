/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A program to which a connection was handed: it has what is reserved, and sends back one frame. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quicket/packets.h>

int main(void)
{
	const char *number = getenv("QUICKET_PACKETS_FD");
	struct quicket_port *port = number == NULL ? NULL : quicket_port_open_on(atoi(number), 16, 16, 2048);
	struct sockaddr_storage address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
	unsigned char copy[2048];
	const unsigned char *frame;
	int protocol;
	size_t len;

	if (port == NULL) {
		printf("%d %s\n", errno, quicket_port_error());
		return 1;
	}
	if (quicket_port_reserved(port, 0, &protocol, &address) != 1 || protocol != IPPROTO_UDP || address.ss_family != AF_INET)
		return 2;
	if (quicket_port_reserved(port, 1, NULL, NULL) != 0)
		return 3;
	if (quicket_port_claim(port, IPPROTO_TCP, (struct sockaddr *)v4, sizeof(*v4)) != -1 || errno != ENOENT)
		return 4;
	if (quicket_port_claim(port, protocol, (struct sockaddr *)v4, sizeof(*v4)) != 0)
		return 5;
	if (quicket_port_claim(port, protocol, (struct sockaddr *)v4, sizeof(*v4)) != -1 || errno != EBUSY)
		return 6;
	printf("%d\n", ntohs(v4->sin_port));
	fflush(stdout);
	if (quicket_port_wait(port, 20000) != 1 || quicket_port_ready(port) != 1)
		return 7;
	frame = quicket_port_frame(port, 0, &len);
	memcpy(copy, frame, len);
	memcpy(copy + 26, frame + 30, 4);
	memcpy(copy + 30, frame + 26, 4);
	memcpy(copy + 34, frame + 36, 2);
	memcpy(copy + 36, frame + 34, 2);
	if (quicket_port_send(port, copy, len) != (ssize_t)len)
		return 8;
	/* Whoever has asked ends the program when the answer has come. */
	quicket_port_release(port, 1);
	if (quicket_port_wait(port, 20000) != 1)
		return 9;
	quicket_port_close(port);
	return 0;
}
