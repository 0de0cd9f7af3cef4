/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * netmap's calls for programs that use nm_open and its like, over ports at the switch for packets. What reaches into netmap's
 * rings itself does not compile.
 *
 * Names of interfaces are `quicket:PATH@PROTOCOL:ADDRESS:PORT`, with more addresses behind commas: the switch at that path,
 * and what is registered there: `quicket:/run/packets@udp:192.0.2.1:53,tcp:[2001:db8::1]:80`. What differs: nm_inject
 * sends at once, so that there is nothing to synchronize; a frame is there until the next call of nm_nextpkt or nm_dispatch.
 * Before poll, nm_nextpkt or nm_dispatch has to have said that there is nothing more.
 */
#ifndef QUICKET_NETMAP_USER_H
#define QUICKET_NETMAP_USER_H

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <quicket/packets.h>

#define NM_QUICKET_RING 512
#define NM_QUICKET_SLOT 2048

struct nmreq;

struct nm_pkthdr {
	struct timeval ts;
	uint32_t caplen;
	uint32_t len;
	uint64_t flags;
	struct nm_desc *d;
	unsigned char *buf;
};

struct nm_stat {
	unsigned int ps_recv;
	unsigned int ps_drop;
	unsigned int ps_ifdrop;
};

struct nm_desc {
	struct nm_desc *self;
	int fd;
	struct nm_pkthdr hdr;
	struct nm_stat st;
	/* Not netmap's: */
	struct quicket_port *port;
	uint32_t ready; /* frames that have come and are not given back */
	uint32_t taken; /* of these, what the program has had */
	int asleep;
};

#define P2NMD(p) ((struct nm_desc *)(p))
#define NETMAP_FD(d) (P2NMD(d)->fd)

typedef void (*nm_cb_t)(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *frame);

/* Registers one address: `udp:192.0.2.1:53`. */
static inline int nm_quicket_register(struct quicket_port *port, char *text)
{
	struct sockaddr_storage address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
	socklen_t len;
	char *host = strchr(text, ':'), *number = strrchr(text, ':'), *end;
	unsigned long value;
	int kind, s, result;

	errno = EINVAL;
	if (host == NULL || host == number)
		return -1;
	*host++ = *number++ = 0;
	if (strcmp(text, "udp") == 0)
		kind = SOCK_DGRAM;
	else if (strcmp(text, "tcp") == 0)
		kind = SOCK_STREAM;
	else
		return -1;
	value = strtoul(number, &end, 10);
	if (*number == 0 || *end != 0 || value == 0 || value > 65535)
		return -1;
	memset(&address, 0, sizeof(address));
	if (*host == '[' && strlen(host) > 2 && host[strlen(host) - 1] == ']') {
		host[strlen(host) - 1] = 0;
		if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) != 1)
			return -1;
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)value);
		len = sizeof(*v6);
	} else {
		if (inet_pton(AF_INET, host, &v4->sin_addr) != 1)
			return -1;
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)value);
		len = sizeof(*v4);
	}
	s = socket(address.ss_family, kind | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -1;
	result = bind(s, (struct sockaddr *)&address, len);
	if (result == 0)
		result = quicket_port_register(port, s);
	value = (unsigned long)errno;
	close(s);
	errno = (int)value;
	return result;
}

static inline int nm_close(struct nm_desc *d)
{
	if (d == NULL || d->self != d)
		return EINVAL;
	quicket_port_close(d->port);
	d->self = NULL;
	free(d);
	return 0;
}

static inline struct nm_desc *nm_open(const char *name, const struct nmreq *request, uint64_t flags,
				      const struct nm_desc *parent)
{
	char text[PATH_MAX + 1024], *addresses, *next, *rest = NULL;
	struct nm_desc *d;
	int error;

	(void)request;
	(void)flags;
	(void)parent;
	errno = EINVAL;
	if (strncmp(name, "quicket:", 8) != 0 || strlen(name + 8) >= sizeof(text))
		return NULL;
	strcpy(text, name + 8);
	addresses = strrchr(text, '@');
	if (addresses != NULL)
		*addresses++ = 0;
	d = (struct nm_desc *)calloc(1, sizeof(*d));
	if (d == NULL)
		return NULL;
	d->port = quicket_port_open(text, NM_QUICKET_RING, NM_QUICKET_RING, NM_QUICKET_SLOT);
	if (d->port == NULL) {
		error = errno;
		free(d);
		errno = error;
		return NULL;
	}
	d->self = d;
	d->fd = quicket_port_fd(d->port);
	for (next = addresses; next != NULL && (next = strtok_r(next, ",", &rest)) != NULL; next = rest) {
		if (nm_quicket_register(d->port, next) != 0) {
			error = errno;
			nm_close(d);
			errno = error;
			return NULL;
		}
	}
	return d;
}

/* Sends a frame: its length, or 0 if there is no room. */
static inline int nm_inject(struct nm_desc *d, const void *frame, size_t len)
{
	ssize_t sent = quicket_port_send(d->port, frame, len);

	return sent < 0 ? 0 : (int)sent;
}

/* The next frame, or NULL if there is none: then poll waits for more. */
static inline unsigned char *nm_nextpkt(struct nm_desc *d, struct nm_pkthdr *header)
{
	const void *frame;
	size_t len = 0;
	int64_t ready;

	while (d->taken == d->ready) {
		if (d->taken > 0)
			quicket_port_release(d->port, d->taken);
		d->taken = d->ready = 0;
		if (d->asleep && quicket_port_awake(d->port) != 0)
			return NULL;
		d->asleep = 0;
		ready = quicket_port_ready(d->port);
		if (ready < 0)
			return NULL;
		d->ready = (uint32_t)ready;
		if (ready == 0) {
			int asleep = quicket_port_sleep(d->port);

			d->asleep = asleep == 1;
			if (asleep != 0)
				return NULL;
		}
	}
	frame = quicket_port_frame(d->port, d->taken, &len);
	if (frame == NULL)
		return NULL;
	d->taken++;
	d->st.ps_recv++;
	memset(header, 0, sizeof(*header));
	gettimeofday(&header->ts, NULL);
	header->len = header->caplen = (uint32_t)len;
	header->d = d;
	header->buf = (unsigned char *)(uintptr_t)frame;
	return header->buf;
}

/* Calls a function for up to `count` frames, or for all if it is not above 0. Returns for how many. */
static inline int nm_dispatch(struct nm_desc *d, int count, nm_cb_t call, unsigned char *arg)
{
	int n;

	for (n = 0; count <= 0 || n < count; n++) {
		const unsigned char *frame = nm_nextpkt(d, &d->hdr);

		if (frame == NULL)
			break;
		call(arg, &d->hdr, frame);
	}
	return n;
}

#endif
