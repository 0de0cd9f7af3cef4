/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reads a frame from standard input and says which error of ICMP it is. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <quicket/packets.h>

static void show(const char *what, const struct sockaddr_storage *address)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
	int is_v4 = address->ss_family == AF_INET;
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(address->ss_family, is_v4 ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr, text, sizeof(text));
	printf("%s %s %d\n", what, text, ntohs(is_v4 ? v4->sin_port : v6->sin6_port));
}

int main(void)
{
	unsigned char frame[2048];
	ssize_t len = read(0, frame, sizeof(frame));
	struct quicket_icmp error;
	ssize_t n;

	if (len <= 0)
		return 1;
	/* What is cut off anywhere is none, and nothing behind it is read. */
	for (n = 0; n < len; n++) {
		unsigned char *cut = memcpy(frame + sizeof(frame) / 2, frame, (size_t)n);

		if (quicket_icmp_read(cut, (size_t)n, &error) != 0)
			return 2;
	}
	if (quicket_icmp_read(NULL, 9, &error) != -1 || quicket_icmp_read(frame, 9, NULL) != -1)
		return 3;
	if (quicket_icmp_read(frame, (size_t)len, &error) != 1)
		return 4;
	printf("%d %u %d %d %d\n", error.failure, error.mtu, error.type, error.code, error.protocol);
	show("reporter", &error.reporter);
	show("source", &error.source);
	show("destination", &error.destination);
	n = (const unsigned char *)error.quoted - frame;
	printf("%zd %zu\n", n, error.quoted_len);
	return 0;
}
