/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Ports at the switch for packets (`quicket switch packets`): whole frames of Ethernet in slots of shared memory.
 *
 * Functions for frames, and those for waiting, are called by one thread at a time for a port, and for each further queue of one. Any thread
 * may register addresses, give them back, add queues and ask for counters meanwhile. Functions that return int return -1 if they fail, with errno;
 * quicket_port_error says why. When the switch has gone, errno is ECONNRESET or EPIPE: open another port.
 */
#ifndef QUICKET_PACKETS_H
#define QUICKET_PACKETS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct quicket_port;

/*
 * Opens a port at the switch that listens at a path: rings with `send` and `receive` positions, powers of two from 16 to
 * 4096, and slots of `slot` octets, a multiple of 64 from 128 to 16384. NULL if that fails.
 */
struct quicket_port *quicket_port_open(const char *path, uint32_t send, uint32_t receive, uint32_t slot);

/*
 * Opens the port of a connection to the switch that somebody else has opened and handed to this program, such as
 * `quicket switch open`, which has its number in the environment (QUICKET_PACKETS_FD): a program in a container has neither the path of the
 * switch nor a socket that proves an address of the host. quicket_port_reserved says which addresses it has, and quicket_port_claim
 * registers one. The descriptor stays the caller's and is not inherited by programs any more (FD_CLOEXEC); the port ends when this one is
 * closed, too. A connection has one port in its life.
 */
struct quicket_port *quicket_port_open_on(int descriptor, uint32_t send, uint32_t receive, uint32_t slot);

/*
 * Adds a queue to a port, with rings of its own and another bell, for another thread: all functions for
 * frames take it as they take a port. Frames for the port are spread over it and over the queues that there are; those of one flow
 * (both addresses, both ports) come to one, until there is another queue. Each queue sends with all addresses of the port. It ends with the port, and is to be closed
 * after it. NULL if that fails; EDQUOT: there are 64, or as many as a user may have. Such a handle has no addresses: EINVAL.
 */
struct quicket_port *quicket_port_add_queue(struct quicket_port *port, uint32_t send, uint32_t receive, uint32_t slot);

/* Ends a port, and gives its addresses back; or lets go of a queue of one that is closed. Of a port that is not, flows
 * would go to nobody: the switch closes it. */
void quicket_port_close(struct quicket_port *port);

/* The sentence for the last failure of this thread; it is there until the next one. */
const char *quicket_port_error(void);

/*
 * Registers what a socket is bound to: frames for that address and port come to this port, which may send with it as
 * source. The switch has a socket of its own there from then on; the program may close this one. It is of UDP or TCP, bound to one address and port,
 * without SO_REUSEADDR and SO_REUSEPORT, neither connected nor listening; or a raw one of a protocol without ports. EBUSY:
 * it has an owner.
 */
int quicket_port_register(struct quicket_port *port, int socket);

/*
 * Gives an address back: of IPv4 or IPv6, with the port of UDP or TCP (IPPROTO_UDP, IPPROTO_TCP), or that of another protocol, where
 * the port does not count. ENOENT: the port does not have it.
 */
int quicket_port_remove(struct quicket_port *port, int protocol, const struct sockaddr *address, socklen_t len);

/*
 * Registers an address that was reserved for the port (quicket_port_open_on); given back, it is reserved again. ENOENT: it was not
 * reserved; EBUSY: the port has it already. quicket_port_reserved says what the n-th of them is: 1, or 0 if there are no more.
 */
int quicket_port_claim(struct quicket_port *port, int protocol, const struct sockaddr *address, socklen_t len);
int quicket_port_reserved(struct quicket_port *port, uint32_t n, int *protocol, struct sockaddr_storage *address);

/*
 * How many frames of the port, with all of its queues, were `sent` or `received`, or dropped for a reason, such as `source` or `full`: all
 * names are in docs/packets.md. Less than 0 if that fails; EINVAL: there is no such name. It asks the switch, and waits for its answer.
 */
int64_t quicket_port_counter(struct quicket_port *port, const char *name);

/* Sending in place: how many frames have room (at least `wanted`, or else all that have); the slot of the n-th, and how long
 * it is; the length of the n-th frame; and sending the first n, with one call for many. */
int64_t quicket_port_room(struct quicket_port *port, uint32_t wanted);
void *quicket_port_slot(struct quicket_port *port, uint32_t n, size_t *len);
int quicket_port_set_len(struct quicket_port *port, uint32_t n, uint16_t len);
int quicket_port_publish(struct quicket_port *port, uint32_t n);

/* Copies a frame and sends it: its length; 0 if there is no room. EMSGSIZE: it is longer than a slot. The frame may be in a
 * slot, that of the n-th or another one's, in whole or in part. */
ssize_t quicket_port_send(struct quicket_port *port, const void *frame, size_t len);

/* Receiving in place: how many frames have come; the n-th, and how long it is; and giving the first n back. */
int64_t quicket_port_ready(struct quicket_port *port);
const void *quicket_port_frame(struct quicket_port *port, uint32_t n, size_t *len);
int quicket_port_release(struct quicket_port *port, uint32_t n);

/* Waits for frames, or for room to send: 1, or 0 when the time is over. Less than 0 milliseconds: without end. */
int quicket_port_wait(struct quicket_port *port, int milliseconds);
int quicket_port_wait_for_room(struct quicket_port *port, int milliseconds);

/*
 * Waiting with other descriptors: quicket_port_sleep says that this side sleeps, and returns 0 if frames have come by now; after
 * 1, quicket_port_fd becomes readable when some come. quicket_port_awake comes after that.
 */
int quicket_port_fd(struct quicket_port *port);
int quicket_port_sleep(struct quicket_port *port);
int quicket_port_awake(struct quicket_port *port);

/*
 * Waiting with other descriptors, by the rule of the system's own: with quicket_port_rest alone, quicket_port_fd is readable from the beginning
 * whenever frames wait, be it before the first look or after some of them were taken. It is called when no more than `held` frames are left, which
 * the caller has read and not given back: 1, or 0 if more have come by now. Nothing else may wait on that port then: the four functions above
 * take the rings that this one counts on.
 */
int quicket_port_rest(struct quicket_port *port, uint32_t held);

/* Where there was no room to send: quicket_port_fd is not writable (POLLOUT) until the switch has looked at the port again. */
int quicket_port_hold(struct quicket_port *port);

/* What has become of a packet, as an error of ICMP says. */
enum quicket_icmp_failure {
	QUICKET_ICMP_PORT = 1, /* nobody listens on the port */
	QUICKET_ICMP_HOST = 2, /* the host or its network cannot be reached, or an administrator forbids it */
	QUICKET_ICMP_TOO_BIG = 3, /* it is longer than packets may be on the way (RFC 1191, RFC 8201) */
	QUICKET_ICMP_TIME_EXCEEDED = 4, /* its time to live, or that of its fragments, was over */
	QUICKET_ICMP_PARAMETER = 5, /* something is wrong with its header */
};

struct quicket_icmp {
	int failure; /* one of these */
	uint32_t mtu; /* with QUICKET_ICMP_TOO_BIG: the longest packet in octets, or 0 of a router that does not know */
	uint8_t type, code; /* as they are there */
	uint8_t protocol; /* of IP, of the packet */
	struct sockaddr_storage reporter; /* who says so: a router, or the destination */
	struct sockaddr_storage source, destination; /* of the packet, with ports where its protocol has them */
	const void *quoted; /* its beginning from the transport header on, in the frame */
	size_t quoted_len;
};

/*
 * Reads a frame that has come to a port, which may be an error of ICMP or ICMPv6 about a packet that the port has sent: the switch copies
 * those of network devices. 1, or 0 if the frame is none. Nobody vouches for them: what RFC 5927 says for TCP, and RFC 9000,
 * Section 14.2.1, for QUIC, is for the stack to do.
 */
int quicket_icmp_read(const void *frame, size_t len, struct quicket_icmp *error);

#ifdef __cplusplus
}
#endif

#endif
