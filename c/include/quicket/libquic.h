/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Functions by the names that libquic has for them, on descriptors of quicket_socket(), with the
 * handshake by Quicket's TLS. Those of libquic that take a session of GnuTLS are not here: a program
 * that brings GnuTLS uses libquic itself, under `quicket run`.
 */
#ifndef QUICKET_LIBQUIC_H
#define QUICKET_LIBQUIC_H

#include "quicket.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Handshakes; lists of protocols are separated by commas. 0, or a negative number of errno.h.
 * A pre-shared key (`pkey_file` of a client, no `cert_file` of a server) is -EOPNOTSUPP: rustls has
 * none.
 */
int quic_client_handshake(int sockfd, const char *pkey_file, const char *hostname,
			  const char *alpns);
int quic_server_handshake(int sockfd, const char *pkey_file, const char *cert_file,
			  const char *alpns);

/*
 * A message of a stream. `flags` are those of sendmsg and recvmsg and of streams, together; in
 * recvmsg they are also the answer. As from sendmsg(2) and recvmsg(2): -1 and errno.
 */
ssize_t quic_sendmsg(int sockfd, const void *msg, size_t len, int64_t sid, uint32_t flags);
ssize_t quic_recvmsg(int sockfd, void *msg, size_t len, int64_t *sid, uint32_t *flags);

/*
 * Where messages go, by default to standard error, and from which level of syslog(3) on, by default
 * none. Both return what was before.
 */
typedef void (*quic_set_log_func_t)(int level, const char *msg);
quic_set_log_func_t quic_set_log_func(quic_set_log_func_t func);
int quic_set_log_level(int level);

#ifdef __cplusplus
}
#endif

#endif
