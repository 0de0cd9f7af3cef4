/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * netmap's calls for programs that use nm_open and its like, over ports at the switch for packets. What reaches into netmap's
 * rings itself does not compile.
 *
 * Names of interfaces are `netmap:PATH@PROTOCOL:ADDRESS:PORT`, with more addresses behind commas: the switch at that path,
 * and what is registered there: `netmap:/run/packets@udp:192.0.2.1:53,tcp:[2001:db8::1]:80`; `quicket:` is the same. What differs: nm_inject
 * sends at once, so that there is nothing to synchronize; the frame of nm_nextpkt is there until the next call of nm_nextpkt or nm_dispatch, and
 * one of nm_dispatch until the function that is called with it returns.
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <net/netmap.h>
#include <quicket/packets.h>

#define NM_QUICKET_RING 512
#define NM_QUICKET_SLOT 2048

/* How many octets a name may have. */
#define NM_QUICKET_NAME (PATH_MAX + 1024)

/* To nm_open: what of the parent's request is used. Its memory is used again, of which there is none here. */
enum {
	NM_OPEN_NO_MMAP = 0x040000,
	NM_OPEN_IFNAME = 0x080000,
	NM_OPEN_ARG1 = 0x100000,
	NM_OPEN_ARG2 = 0x200000,
	NM_OPEN_ARG3 = 0x400000,
	NM_OPEN_RING_CFG = 0x800000,
};

/* For programs that say what they do. */
#ifndef ND
#define ND(format, ...) do { } while (0)
#define D(format, ...) \
	do { \
		struct timeval nm_now; \
		gettimeofday(&nm_now, NULL); \
		fprintf(stderr, "%03d.%06d %s [%d] " format "\n", (int)(nm_now.tv_sec % 1000), (int)nm_now.tv_usec, __func__, \
			__LINE__, ##__VA_ARGS__); \
	} while (0)
/* At most so many in a second. */
#define RD(most, format, ...) \
	do { \
		static time_t nm_second; \
		static int nm_count; \
		time_t nm_at = time(NULL); \
		if (nm_second != nm_at) \
			nm_count = 0; \
		nm_second = nm_at; \
		if (nm_count++ < (most)) \
			D(format, ##__VA_ARGS__); \
	} while (0)
#endif

/* In nm_pkthdr.flags: nm_dispatch has more frames for this call. */
#define NM_MORE_PKTS 1

struct netmap_slot;

/* It begins as pcap_pkthdr does, and programs make one of the other. */
struct nm_pkthdr {
	struct timeval ts;
	uint32_t caplen;
	uint32_t len;
	uint64_t flags;
	struct nm_desc *d;
	struct netmap_slot *slot; /* NULL */
	uint8_t *buf;
};

struct nm_stat {
	unsigned int ps_recv;
	unsigned int ps_drop;
	unsigned int ps_ifdrop;
};

#define NM_ERRBUF_SIZE 512

struct nm_quicket_family;

struct nm_desc {
	struct nm_desc *self;
	int fd;
	/* Which rings were asked for: a name for one has its number. */
	uint16_t first_tx_ring, last_tx_ring, cur_tx_ring;
	uint16_t first_rx_ring, last_rx_ring, cur_rx_ring;
	struct nmreq req;
	struct nm_pkthdr hdr;
	/* The program's: nothing here reads them. */
	int snaplen;
	int promisc;
	int to_ms;
	char *errbuf;
	uint32_t if_flags;
	uint32_t if_reqcap;
	uint32_t if_curcap;
	struct nm_stat st;
	char msg[NM_ERRBUF_SIZE];
	/* Not netmap's: */
	struct nm_quicket_family *family;
	struct nm_desc *next;
	struct quicket_port *port;
	uint32_t ready; /* frames that have come and are not given back */
	uint32_t taken; /* of these, what the program has had */
};

/* The descriptors of one port. It ends with the last one, as flows of those that end before would go to nobody. */
struct nm_quicket_family {
	struct nm_desc *all; /* the newest first, and the port itself last */
	struct quicket_port *port;
	int users; /* descriptors that are not closed */
	char name[NM_QUICKET_NAME];
};

#define IS_NETMAP_DESC(d) ((d) != NULL && P2NMD(d)->self == P2NMD(d))
#define P2NMD(p) ((const struct nm_desc *)(p))
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

/* What was asked for, as netmap says it. `ring` is what the name has behind the addresses, or NULL. */
static inline void nm_quicket_request(struct nm_desc *d, const struct nmreq *request, uint64_t flags,
				      const struct nm_desc *parent, const char *ring)
{
	if (request != NULL)
		d->req = *request;
	else if (parent != NULL)
		d->req = parent->req;
	if (parent != NULL && (flags & NM_OPEN_IFNAME)) {
		d->req.nr_ringid = parent->req.nr_ringid;
		d->req.nr_flags = parent->req.nr_flags;
	} else if (ring != NULL) {
		d->req.nr_ringid = (uint16_t)(strtoul(ring, NULL, 10) & NETMAP_RING_MASK);
		d->req.nr_flags = (d->req.nr_flags & ~(uint32_t)NR_REG_MASK) | NR_REG_ONE_NIC;
	} else if ((d->req.nr_flags & NR_REG_MASK) == NR_REG_DEFAULT) {
		d->req.nr_flags |= NR_REG_ALL_NIC;
	}
	/* No interface can have that name: programs change the one that it says, such as to promiscuous mode. */
	snprintf(d->req.nr_name, sizeof(d->req.nr_name), "quicket/%d", d->fd);
	d->req.nr_version = NETMAP_API;
	d->req.nr_tx_rings = d->req.nr_rx_rings = 1;
	d->req.nr_tx_slots = d->req.nr_rx_slots = NM_QUICKET_RING;
	if ((d->req.nr_flags & NR_REG_MASK) == NR_REG_ONE_NIC)
		d->first_tx_ring = d->req.nr_ringid & NETMAP_RING_MASK;
	d->last_tx_ring = d->cur_tx_ring = d->first_rx_ring = d->last_rx_ring = d->cur_rx_ring = d->first_tx_ring;
}

static inline struct nm_desc *nm_open(const char *name, const struct nmreq *request, uint64_t flags,
				      const struct nm_desc *parent)
{
	char text[NM_QUICKET_NAME], *addresses, *ring = NULL;
	const char *rest;
	struct nm_quicket_family *family = IS_NETMAP_DESC(parent) ? parent->family : NULL;
	struct nm_desc *d;
	int error;

	if (family != NULL && (flags & NM_OPEN_IFNAME)) {
		strcpy(text, family->name);
	} else {
		errno = EINVAL;
		if (name == NULL)
			return NULL;
		rest = strncmp(name, "netmap:", 7) == 0 ? name + 7 : strncmp(name, "quicket:", 8) == 0 ? name + 8 : NULL;
		if (rest == NULL || strlen(rest) >= sizeof(text))
			return NULL;
		strcpy(text, rest);
		/* Which ring it is to be: -3 behind the addresses. */
		addresses = strrchr(text, '@');
		ring = addresses == NULL ? NULL : strrchr(addresses, '-');
		if (ring != NULL && ring[1] != 0 && strspn(ring + 1, "0123456789") == strlen(ring + 1))
			*ring++ = 0;
		else
			ring = NULL;
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
	d->fd = quicket_port_fd(d->port);
	nm_quicket_request(d, request, flags, family != NULL ? parent : NULL, ring);
	d->self = d;
	return d;
}

/*
 * Sends a frame: its length, or 0 if there is no room, or errno says why not. Then poll for POLLOUT ends when the switch has looked at the port
 * again, which takes what is there; before that, the descriptor is writable.
 */
static inline int nm_inject(struct nm_desc *d, const void *frame, size_t len)
{
	ssize_t sent = quicket_port_send(d->port, frame, len);

	if (sent == 0)
		quicket_port_hold(d->port);
	return sent < 0 ? 0 : (int)sent;
}

/* Gives the frames back that the program has had, and looks what has come. */
static inline void nm_quicket_look(struct nm_desc *d)
{
	int64_t ready;

	if (d->taken > 0)
		quicket_port_release(d->port, d->taken);
	d->taken = 0;
	ready = quicket_port_ready(d->port);
	d->ready = ready < 0 ? 0 : (uint32_t)ready;
}

/* The next frame of those that have been seen. */
static inline int nm_quicket_take(struct nm_desc *d, struct nm_pkthdr *header)
{
	size_t len = 0;
	const void *frame = quicket_port_frame(d->port, d->taken, &len);

	if (frame == NULL)
		return 0;
	d->taken++;
	d->st.ps_recv++;
	header->flags = 0;
	header->len = header->caplen = (uint32_t)len;
	header->d = d;
	header->slot = NULL;
	header->buf = (uint8_t *)(uintptr_t)frame;
	return 1;
}

/*
 * The next frame, or NULL if there is none. When it is the last one, poll waits for more; otherwise it returns at once. Why no frame is there
 * without that: quicket_port_rest.
 */
static inline uint8_t *nm_nextpkt(struct nm_desc *d, struct nm_pkthdr *header)
{
	if (d->taken == d->ready)
		nm_quicket_look(d);
	if (d->ready == 0) {
		/* Frames that come just now are for the next call: the descriptor is readable. */
		quicket_port_rest(d->port, 0);
		return NULL;
	}
	if (!nm_quicket_take(d, header))
		return NULL;
	gettimeofday(&header->ts, NULL);
	if (d->taken == d->ready) {
		/* The program holds this one alone, or else there might be no room for more, and nothing would wake it. */
		if (d->taken > 1)
			quicket_port_release(d->port, d->taken - 1);
		d->taken = d->ready = 1;
		if (quicket_port_ready(d->port) == 1)
			quicket_port_rest(d->port, 1);
	}
	return header->buf;
}

/*
 * Calls a function for up to `count` frames, or for all that are there when it begins if `count` is not above 0. Returns for how many. All of them have
 * one time.
 */
static inline int nm_dispatch(struct nm_desc *d, int count, nm_cb_t call, unsigned char *arg)
{
	struct timeval now;
	int n = 0, most;

	nm_quicket_look(d);
	most = count > 0 && (uint32_t)count < d->ready ? count : (int)d->ready;
	if (most > 0)
		gettimeofday(&now, NULL);
	while (n < most && nm_quicket_take(d, &d->hdr)) {
		d->hdr.ts = now;
		d->hdr.flags = ++n < most ? NM_MORE_PKTS : 0;
		call(arg, &d->hdr, d->hdr.buf);
	}
	nm_quicket_look(d);
	if (d->ready == 0)
		quicket_port_rest(d->port, 0);
	return n;
}

#endif
