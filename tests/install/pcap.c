/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two programs for libpcap, which has ports for packets by netmap's calls. NAME answer OTHER COUNT sends frames back that come from port OTHER, and
 * NAME ask FROM TO COUNT sends frames from one port to another one of 127.0.0.1, and waits for each answer.
 */
#include <pcap/pcap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEN 46

/* Swaps the addresses and the ports of UDP over IPv4: neither checksum changes. */
static void turn_around(unsigned char *frame)
{
	unsigned char kept[4];

	memcpy(kept, frame + 26, 4);
	memcpy(frame + 26, frame + 30, 4);
	memcpy(frame + 30, kept, 4);
	memcpy(kept, frame + 34, 2);
	memcpy(frame + 34, frame + 36, 2);
	memcpy(frame + 36, kept, 2);
}

/* RFC 791 and RFC 768; without a checksum of UDP. */
static void compose(unsigned char *frame, unsigned int from, unsigned int to, uint32_t number)
{
	const unsigned char head[] = {0x45, 0, 0, LEN - 14, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1};
	uint32_t sum = 0;
	int i;

	memset(frame, 0, LEN);
	frame[12] = 8;
	memcpy(frame + 14, head, sizeof(head));
	for (i = 0; i < 20; i += 2)
		sum += (uint32_t)(head[i] << 8 | head[i + 1]);
	sum = ~((sum & 0xffff) + (sum >> 16));
	frame[24] = (unsigned char)(sum >> 8);
	frame[25] = (unsigned char)sum;
	frame[34] = (unsigned char)(from >> 8);
	frame[35] = (unsigned char)from;
	frame[36] = (unsigned char)(to >> 8);
	frame[37] = (unsigned char)to;
	frame[39] = LEN - 34;
	memcpy(frame + 42, &number, sizeof(number));
}

static int fails(pcap_t *pcap, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pcap_geterr(pcap));
	return 1;
}

int main(int argc, char **argv)
{
	int asks = argc == 6 && strcmp(argv[2], "ask") == 0, result = 0;
	unsigned int other = argc < 5 ? 0 : (unsigned int)atoi(argv[asks ? 4 : 3]);
	uint32_t count = argc < 5 ? 0 : (uint32_t)atoi(argv[argc - 1]), n;
	char text[PCAP_ERRBUF_SIZE], filter[64];
	unsigned char frame[2048];
	struct bpf_program program;
	struct pcap_pkthdr *header;
	const unsigned char *came;
	pcap_t *pcap;

	alarm(60);
	pcap = pcap_open_live(argc < 5 ? "" : argv[1], sizeof(frame), 1, 1000, text);
	if (pcap == NULL) {
		fprintf(stderr, "%s\n", text);
		return 1;
	}
	snprintf(filter, sizeof(filter), "udp and src host 127.0.0.1 and src port %u", other);
	if (pcap_compile(pcap, &program, filter, 1, PCAP_NETMASK_UNKNOWN) != 0 || pcap_setfilter(pcap, &program) != 0)
		return fails(pcap, filter);
	pcap_freecode(&program);
	puts("ready");
	fflush(stdout);
	for (n = 0; n < count; n++) {
		if (asks) {
			compose(frame, (unsigned int)atoi(argv[3]), other, n);
			if (pcap_inject(pcap, frame, LEN) != LEN)
				return fails(pcap, "to ask");
		}
		/* 0 is a frame that the filter does not let through. */
		while ((result = pcap_next_ex(pcap, &header, &came)) == 0)
			;
		if (result != 1)
			return fails(pcap, "to wait");
		if (header->caplen != header->len || header->len > sizeof(frame) || memcmp(came + 42, &n, sizeof(n)) != 0)
			return 2;
		memcpy(frame, came, header->len);
		turn_around(frame);
		if (!asks && pcap_inject(pcap, frame, header->len) != (int)header->len)
			return fails(pcap, "to answer");
	}
	pcap_close(pcap);
	printf("%u\n", n);
	return 0;
}
