/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests over HTTP/3 (RFC 9114). Connections are made when they are needed, shared by requests to the same server,
 * resumed with 0-RTT from stored sessions, and follow this host from network to network (docs/client.md). Protocols of
 * one's own go by the sockets of <quicket/quicket.h>, which follow it with QUICKET_SOCKOPT_FOLLOW_NETWORK.
 *
 *	struct quicket_http *http = quicket_http_new(NULL);
 *	struct quicket_exchange *exchange = quicket_http_get(http, "https://example.org/large", 10000);
 *	while ((length = quicket_exchange_read(exchange, piece, sizeof(piece), 10000)) > 0)
 *		fwrite(piece, 1, length, stdout);
 *	quicket_exchange_free(exchange);
 *	quicket_http_free(http);
 *
 * Functions that fail return NULL or -1 with errno; quicket_http_error says why in a sentence. All take NULL for a client
 * or an exchange: EINVAL. After fork(2) clients and exchanges stay with the parent: in the child all functions fail with
 * EBADFD, but for those that free, which do nothing there.
 *
 * `milliseconds` is how long a call may wait: less than 0 without end, 0 not at all. When that time is over the call fails
 * with EAGAIN, nothing is lost, and it can be made again. A signal ends no call.
 *
 * A client may be used by several threads at once, an exchange by one at a time.
 */
#ifndef QUICKET_HTTP_H
#define QUICKET_HTTP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who makes requests: its connections, its sessions, and a thread that drives them. */
struct quicket_http;

/* A request and its answer. */
struct quicket_exchange;

/* Neither keeps nor uses sessions: each connection begins with a whole handshake. */
#define QUICKET_HTTP_NO_SESSIONS 1
/*
 * Sends nothing before the handshake is complete. Without it requests with safe methods (RFC 9110, Section 9.2.1) and
 * without a body go as 0-RTT data where a session allows it: AN ATTACKER CAN REPEAT THEM (RFC 8470).
 */
#define QUICKET_HTTP_NO_EARLY_DATA 2
/* Connections do not follow this host from network to network. */
#define QUICKET_HTTP_STAY 4

/* How a client connects. What is 0 or NULL is as by default. */
struct quicket_http_options {
	/* sizeof(struct quicket_http_options): later versions of the library know by it what a program knows. */
	size_t size;
	/* Roots that are trusted instead of those of the system: a file (PEM). */
	const char *ca_file;
	/* SHA-256 fingerprints of certificates that alone are trusted, separated by commas (hexadecimal, with or without sha256:). */
	const char *pins;
	/* What the client shows to servers that ask: files with its chain of certificates and its key (PEM), both or none. */
	const char *cert_file;
	const char *key_file;
	/* Sessions are kept in files of this folder, which is made if it is not there; by default in memory. */
	const char *sessions;
	/* A folder for logs of the connections in the qlog format. */
	const char *qlog;
	/* Addresses of hosts that the system is not asked for: NAME=ADDRESS[,ADDRESS...], separated by spaces. */
	const char *hosts;
	/* QUICKET_HTTP_...; others give EINVAL. */
	uint64_t flags;
};

/*
 * A client; NULL for `options` is all by default. EINVAL: a file or text is not what it should be, or there are flags
 * that are not known; E2BIG: options that this version of the library does not know.
 */
struct quicket_http *quicket_http_new(const struct quicket_http_options *options);

/*
 * Ends a client. Exchanges that are under way go on, and with the last of them the connections end; then this, or
 * quicket_exchange_free, waits half a second at most until servers have been told.
 */
void quicket_http_free(struct quicket_http *http);

/* The sentence for the last failure of this thread; it is there until the next one. */
const char *quicket_http_error(void);

/*
 * Asks for what a URL names, and waits for status and fields of the answer: the three calls below in one. When the time is
 * over, the request is cancelled.
 */
struct quicket_exchange *quicket_http_get(struct quicket_http *http, const char *url, int milliseconds);

/*
 * A request that is not sent yet. The URL is absolute and begins with https://. EINVAL if it is not, or has a user in it.
 */
struct quicket_exchange *quicket_exchange_new(struct quicket_http *http, const char *method, const char *url);

/*
 * Adds a field to the request: until it is sent. EINVAL for a name or value that no field may have, and for fields that
 * belong to a connection of HTTP/1.1, as connection or transfer-encoding do (RFC 9114, Section 4.2); E2BIG for more fields
 * than 256 or 64 KiB of them.
 */
int quicket_exchange_add_field(struct quicket_exchange *exchange, const char *name, const char *value);

/* Sends the request with a body of `length` bytes, which are copied; without a body if it is 0. Waits for nothing. */
int quicket_exchange_send(struct quicket_exchange *exchange, const void *body, size_t length);

/*
 * Sends the request with a body that comes by quicket_exchange_write and ends by quicket_exchange_finish. If the exchange
 * is freed before, the request is cancelled: the server does not take a part for the whole.
 */
int quicket_exchange_send_head(struct quicket_exchange *exchange);

/*
 * Writes to the body; returns how many bytes it took, which are fewer than `length` where the time was over before. EPIPE:
 * nobody reads on, as the server has answered without the rest, or the request has failed; quicket_exchange_status tells.
 */
ssize_t quicket_exchange_write(struct quicket_exchange *exchange, const void *data, size_t length, int milliseconds);

/* Ends the body. */
int quicket_exchange_finish(struct quicket_exchange *exchange, int milliseconds);

/*
 * Waits for status and fields of the answer: the status, such as 200. Errors are of the exchange then, and stay:
 * ENOENT: the name of the host leads to no address; ECONNREFUSED, EHOSTUNREACH, ETIMEDOUT, ECONNRESET, EPROTO: there is no
 * connection, or it has ended, or the server has broken off or said what it must not.
 */
int quicket_exchange_status(struct quicket_exchange *exchange, int milliseconds);

/*
 * The nth value, from 0 on, of a field of the answer, after its status; `name` in any case. NULL without an error if there
 * is none. Texts are the exchange's, and are there until it is freed.
 */
const char *quicket_exchange_field(struct quicket_exchange *exchange, const char *name, size_t n);

/* The nth of all fields, from 0 on: 1, or 0 if there are no more. */
int quicket_exchange_each_field(struct quicket_exchange *exchange, size_t n, const char **name, const char **value);

/*
 * Reads content: how many bytes, 0 at its end. Waits for the status by itself. EPROTO: there is less or more of it than its
 * Content-Length says; what was read is no whole.
 */
ssize_t quicket_exchange_read(struct quicket_exchange *exchange, void *data, size_t room, int milliseconds);

/*
 * Waits for the fields behind the content (trailers; RFC 9110, Section 6.5), after quicket_exchange_read has returned 0: how
 * many there are. The two below are as those for the fields before the content.
 */
int quicket_exchange_trailers(struct quicket_exchange *exchange, int milliseconds);
const char *quicket_exchange_trailer(struct quicket_exchange *exchange, const char *name, size_t n);
int quicket_exchange_each_trailer(struct quicket_exchange *exchange, size_t n, const char **name, const char **value);

#define QUICKET_EARLY_DATA_NONE 0
#define QUICKET_EARLY_DATA_ACCEPTED 1
#define QUICKET_EARLY_DATA_REJECTED 2

/* The connection of an answer, as it is now. */
struct quicket_exchange_info {
	/* sizeof(struct quicket_exchange_info). */
	size_t size;
	/* Whether it has begun with 0-RTT data, and the server has taken it: QUICKET_EARLY_DATA_... */
	uint64_t early_data;
	/* How often it has moved to another path, by itself. */
	uint64_t path_changes;
	/* The smoothed round trip time, in microseconds. */
	uint64_t smoothed_rtt;
	/* The server's address. */
	struct sockaddr_storage remote;
};

/* Fills as much of it as its size says, after the status. */
int quicket_exchange_info(struct quicket_exchange *exchange, struct quicket_exchange_info *info);

/* Ends an exchange. One that has not come to the end of its answer is cancelled. */
void quicket_exchange_free(struct quicket_exchange *exchange);

#ifdef __cplusplus
}
#endif

#endif
