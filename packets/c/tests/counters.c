/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Counters of a port, and addresses that are given back. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <quicket/packets.h>

static int failed(const char *what)
{
	printf("%s: %d %s\n", what, errno, quicket_port_error());
	return 1;
}

static int give_back(struct quicket_port *port, struct sockaddr *address, socklen_t len)
{
	socklen_t known = len;
	int s = socket(address->sa_family, SOCK_DGRAM, 0);

	if (s < 0 || bind(s, address, len) != 0 || getsockname(s, address, &known) != 0)
		return failed("socket");
	if (quicket_port_register(port, s) != 0)
		return failed("register");
	close(s);
	if (quicket_port_remove(port, IPPROTO_TCP, address, len) != -1 || errno != ENOENT)
		return failed("another protocol");
	if (quicket_port_remove(port, IPPROTO_UDP, address, len - 1) != -1 || errno != EINVAL)
		return failed("cut off");
	if (quicket_port_remove(port, IPPROTO_UDP, address, len) != 0)
		return failed("remove");
	if (quicket_port_remove(port, IPPROTO_UDP, address, len) != -1 || errno != ENOENT)
		return failed("twice");
	return 0;
}

/* The number is that of the switch, whatever this library makes of it. */
static int refuse(struct quicket_port *port)
{
	int s = socket(AF_UNIX, SOCK_DGRAM, 0);

	if (s < 0)
		return failed("socket");
	if (quicket_port_register(port, s) != -1 || errno != EAFNOSUPPORT)
		return failed("a socket that is none of IP");
	close(s);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct quicket_port *port = argc == 2 ? quicket_port_open(argv[1], 16, 16, 2048) : NULL;
	char nothing[60] = {0};
	int n;

	if (port == NULL)
		return failed("open");
	v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (give_back(port, (struct sockaddr *)&v4, sizeof(v4)) || give_back(port, (struct sockaddr *)&v6, sizeof(v6)))
		return 1;
	if (refuse(port))
		return 1;
	if (quicket_port_counter(port, "none") != -1 || errno != EINVAL)
		return failed("no such counter");
	if (quicket_port_send(port, nothing, sizeof(nothing)) != sizeof(nothing))
		return failed("send");
	for (n = 0; quicket_port_counter(port, "not_ip") != 1; n++) {
		if (n > 5000)
			return failed("not_ip");
		usleep(1000);
	}
	if (quicket_port_counter(port, "sent") != 0 || quicket_port_counter(port, "received") != 0)
		return failed("sent");
	quicket_port_close(port);
	return 0;
}
