/* What the example `moving` does as a client, by a socket of C: client ADDRESS PORT PIN MIB. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <quicket/quicket.h>

static uint8_t byte_at(uint64_t place)
{
	return place * 0x9e3779b97f4a7c15 >> 56;
}

static int fail(int fd, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, quicket_strerror(fd, errno));
	return 1;
}

int main(int count, char **words)
{
	static uint8_t piece[65536];
	struct sockaddr_in to = { .sin_family = AF_INET };
	uint32_t follows = 1;

	if (count != 5 || inet_pton(AF_INET, words[1], &to.sin_addr) != 1) {
		fputs("usage: client ADDRESS PORT PIN MIB\n", stderr);
		return 2;
	}
	to.sin_port = htons(atoi(words[2]));
	uint64_t size = strtoull(words[4], NULL, 10) << 20, asked = htobe64(size), place = 0;
	int fd = quicket_socket(AF_INET, SOCK_DGRAM, IPPROTO_QUIC);
	if (quicket_setsockopt(fd, SOL_QUIC, QUICKET_SOCKOPT_FOLLOW_NETWORK, &follows, sizeof(follows)))
		return fail(fd, "QUICKET_SOCKOPT_FOLLOW_NETWORK");
	if (quicket_connect(fd, (struct sockaddr *)&to, sizeof(to)) ||
	    quicket_client_handshake(fd, "localhost", "moving", NULL, words[3]))
		return fail(fd, "the handshake");
	setlinebuf(stdout);
	puts("connected");
	if (quicket_send(fd, &asked, sizeof(asked), MSG_QUIC_STREAM_NEW | MSG_QUIC_STREAM_FIN) != sizeof(asked))
		return fail(fd, "sending");
	while (place < size) {
		uint64_t before = place;
		ssize_t len = quicket_recv(fd, piece, sizeof(piece), 0);
		if (len <= 0)
			return fail(fd, "receiving");
		for (ssize_t at = 0; at < len; at++, place++) {
			if (piece[at] != byte_at(place)) {
				fprintf(stderr, "another byte than was sent at %llu\n", (unsigned long long)place);
				return 1;
			}
		}
		if (before <= size / 16 && size / 16 < place)
			puts("under way");
	}
	printf("received %llu\n", (unsigned long long)place);
	return quicket_close(fd) ? fail(fd, "close") : 0;
}
