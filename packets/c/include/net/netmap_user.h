/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * netmap's calls for programs that use nm_open and its like, over ports at the switch for packets. What reaches into netmap's
 * rings itself does not compile.
 *
 * Names of interfaces are `quicket:PATH@PROTOCOL:ADDRESS:PORT`, with more addresses behind commas: the switch at that path,
 * and what is registered there: `quicket:/run/packets@udp:192.0.2.1:53,tcp:[2001:db8::1]:80`. What differs: nm_inject
 * sends at once, so that there is nothing to synchronize; a frame is there until the next call of nm_nextpkt or nm_dispatch.
 * Before poll, nm_nextpkt or nm_dispatch has to have said that there is nothing more.
 *
 * A second descriptor of the same name with the first one, or a copy of it, as its parent is another queue of that port: one for each thread. In place
 * of PATH, fd:NUMBER is a connection that was handed to the program (quicket switch open).
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

/* How many octets a name may have. */
#define NM_QUICKET_NAME (PATH_MAX + 1024)

/* Which rings a descriptor is for is not chosen here: each has one of sending and one of receiving. */
#define NR_REG_MASK 0xf
#define NR_REG_ALL_NIC 1
#define NR_REG_ONE_NIC 4

/* To nm_open: the name is the parent's; its memory is used again, of which there is none here. */
enum {
	NM_OPEN_NO_MMAP = 0x040000,
	NM_OPEN_IFNAME = 0x080000,
};

struct nmreq {
	uint16_t nr_ringid;
	uint32_t nr_flags;
};

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

struct nm_quicket_family;

struct nm_desc {
	struct nm_desc *self;
	int fd;
	struct nmreq req;
	struct nm_pkthdr hdr;
	struct nm_stat st;
	/* Not netmap's: */
	struct nm_quicket_family *family;
	struct nm_desc *next;
	struct quicket_port *port;
	uint32_t ready; /* frames that have come and are not given back */
	uint32_t taken; /* of these, what the program has had */
	int asleep;
};

/* The descriptors of one port. It ends with the last one, as flows of those that end before would go to nobody. */
struct nm_quicket_family {
	struct nm_desc *all; /* the newest first, and the port itself last */
	struct quicket_port *port;
	int users; /* descriptors that are not closed */
	char name[NM_QUICKET_NAME];
};

#define IS_NETMAP_DESC(d) ((d) != NULL && P2NMD(d)->self == P2NMD(d))
#define P2NMD(p) ((struct nm_desc *)(p))
#define NETMAP_FD(d) (P2NMD(d)->fd)

typedef void (*nm_cb_t)(unsigned char *arg, const struct nm_pkthdr *header, const unsigned char *frame);

/* Registers one address: `udp:192.0.2.1:53`. Where the port's connection was handed over, it is one that was reserved. */
static inline int nm_quicket_register(struct quicket_port *port, char *text, int is_handed)
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
	if (is_handed)
		return quicket_port_claim(port, kind == SOCK_DGRAM ? IPPROTO_UDP : IPPROTO_TCP, (struct sockaddr *)&address, len);
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

/* Ends all descriptors of a port. */
static inline void nm_quicket_end(struct nm_quicket_family *family)
{
	struct nm_desc *d = family->all, *next;

	quicket_port_close(family->port);
	for (; d != NULL; d = next) {
		next = d->next;
		if (d->port != family->port)
			quicket_port_close(d->port);
		free(d);
	}
	free(family);
}

static inline int nm_close(struct nm_desc *d)
{
	if (d == NULL || d->self != d)
		return EINVAL;
	d->self = NULL;
	if (__atomic_sub_fetch(&d->family->users, 1, __ATOMIC_ACQ_REL) == 0)
		nm_quicket_end(d->family);
	return 0;
}

/* Another queue for a port that is there: returns whether there is one. */
static inline int nm_quicket_join(struct nm_desc *d, struct nm_quicket_family *family)
{
	d->port = quicket_port_add_queue(family->port, NM_QUICKET_RING, NM_QUICKET_RING, NM_QUICKET_SLOT);
	if (d->port == NULL)
		return 0;
	d->family = family;
	__atomic_add_fetch(&family->users, 1, __ATOMIC_ACQ_REL);
	d->next = __atomic_load_n(&family->all, __ATOMIC_ACQUIRE);
	while (!__atomic_compare_exchange_n(&family->all, &d->next, d, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	return 1;
}

/* A port with the addresses that its name says: returns whether there is one. */
static inline int nm_quicket_begin(struct nm_desc *d, const char *name)
{
	struct nm_quicket_family *family = (struct nm_quicket_family *)calloc(1, sizeof(*family));
	char text[NM_QUICKET_NAME], *addresses, *next, *end, *rest = NULL;
	int is_handed = strncmp(name, "fd:", 3) == 0, result = 0, error;
	long number = 0;

	if (family == NULL)
		return 0;
	strcpy(family->name, name);
	strcpy(text, name);
	addresses = strrchr(text, '@');
	if (addresses != NULL)
		*addresses++ = 0;
	if (is_handed) {
		number = strtol(text + 3, &end, 10);
		if (text[3] == 0 || *end != 0 || number < 0 || number > INT_MAX)
			errno = EINVAL;
		else
			d->port = quicket_port_open_on((int)number, NM_QUICKET_RING, NM_QUICKET_RING, NM_QUICKET_SLOT);
	} else {
		d->port = quicket_port_open(text, NM_QUICKET_RING, NM_QUICKET_RING, NM_QUICKET_SLOT);
	}
	next = addresses;
	while (d->port != NULL && result == 0 && next != NULL && (next = strtok_r(next, ",", &rest)) != NULL) {
		result = nm_quicket_register(d->port, next, is_handed);
		next = rest;
	}
	if (d->port == NULL || result != 0) {
		error = errno;
		quicket_port_close(d->port);
		free(family);
		errno = error;
		return 0;
	}
	family->all = d;
	family->port = d->port;
	family->users = 1;
	d->family = family;
	return 1;
}

static inline struct nm_desc *nm_open(const char *name, const struct nmreq *request, uint64_t flags,
				      const struct nm_desc *parent)
{
	char text[NM_QUICKET_NAME], *addresses, *ring;
	struct nm_quicket_family *family = IS_NETMAP_DESC(parent) ? parent->family : NULL;
	struct nm_desc *d;
	int error;

	if (family != NULL && (flags & NM_OPEN_IFNAME)) {
		strcpy(text, family->name);
	} else {
		errno = EINVAL;
		if (strncmp(name, "quicket:", 8) != 0 || strlen(name + 8) >= sizeof(text))
			return NULL;
		strcpy(text, name + 8);
		/* Which ring it is to be: -3 behind the addresses. */
		addresses = strrchr(text, '@');
		ring = addresses == NULL ? NULL : strrchr(addresses, '-');
		if (ring != NULL && ring[1] != 0 && strspn(ring + 1, "0123456789") == strlen(ring + 1))
			*ring = 0;
	}
	d = (struct nm_desc *)calloc(1, sizeof(*d));
	if (d == NULL)
		return NULL;
	/* Another name is another port. */
	if (family != NULL && strcmp(text, family->name) == 0 ? !nm_quicket_join(d, family) : !nm_quicket_begin(d, text)) {
		error = errno;
		free(d);
		errno = error;
		return NULL;
	}
	if (request != NULL)
		d->req = *request;
	else if (family != NULL)
		d->req = parent->req;
	d->self = d;
	d->fd = quicket_port_fd(d->port);
	return d;
}

/*
 * Sends a frame: its length, or 0 if there is no room. Unlike netmap's, the descriptor is always writable: poll does not wait for room, and
 * quicket_port_wait_for_room(d->port, ...) does.
 */
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

/*
 * Calls a function for up to `count` frames, or until none is left if it is not above 0: as long as frames come as fast as it takes them.
 * Returns for how many.
 */
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
