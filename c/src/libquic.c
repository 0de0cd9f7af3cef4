/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The functions of <quicket/libquic.h>, by those of <quicket/quicket.h>. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include <quicket/libquic.h>

#define STREAM_FLAGS                                                                            \
	(QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN | QUIC_STREAM_FLAG_UNI |                   \
	 QUIC_STREAM_FLAG_DONTWAIT | QUIC_STREAM_FLAG_SNDBLOCK)

/* One control message with the stream of a message, and room that is aligned for it. */
union stream_control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(struct quic_stream_info))];
};

static _Atomic(quic_set_log_func_t) log_func;
static atomic_int log_level = -1;

quic_set_log_func_t quic_set_log_func(quic_set_log_func_t func)
{
	return atomic_exchange(&log_func, func);
}

int quic_set_log_level(int level)
{
	return atomic_exchange(&log_level, level);
}

static void log_failure(const char *what, int error)
{
	char message[256];
	quic_set_log_func_t func = atomic_load(&log_func);

	if (atomic_load(&log_level) < LOG_ERR)
		return;
	snprintf(message, sizeof(message), "%s: %s", what, strerror(error));
	if (func != NULL)
		func(LOG_ERR, message);
	else
		fprintf(stderr, "quicket: %s\n", message);
}

/* The answer to a handshake: errno is left as it was. */
static int handshake_answer(const char *what, int failed, int before)
{
	int error = failed ? errno : 0;

	errno = before;
	if (error != 0)
		log_failure(what, error);
	return -error;
}

static int without_psk(void)
{
	log_failure("pre-shared keys are for libquic and GnuTLS under quicket run", EOPNOTSUPP);
	return -EOPNOTSUPP;
}

int quic_client_handshake(int sockfd, const char *pkey_file, const char *hostname,
			  const char *alpns)
{
	int before = errno;

	if (pkey_file != NULL)
		return without_psk();
	return handshake_answer("the client's handshake failed",
				quicket_client_handshake(sockfd, hostname, alpns, NULL, NULL) != 0,
				before);
}

int quic_server_handshake(int sockfd, const char *pkey_file, const char *cert_file,
			  const char *alpns)
{
	int before = errno;

	if (cert_file == NULL)
		return without_psk();
	return handshake_answer("the server's handshake failed",
				quicket_server_handshake(sockfd, pkey_file, cert_file, alpns) != 0,
				before);
}

ssize_t quic_sendmsg(int sockfd, const void *msg, size_t len, int64_t sid, uint32_t flags)
{
	union stream_control control = { .room = { 0 } };
	struct quic_stream_info info = { .stream_id = sid, .stream_flags = flags & STREAM_FLAGS };
	struct iovec part = { .iov_base = (void *)msg, .iov_len = len };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	control.header.cmsg_level = SOL_QUIC;
	control.header.cmsg_type = QUIC_STREAM_INFO;
	control.header.cmsg_len = CMSG_LEN(sizeof(info));
	memcpy(CMSG_DATA(&control.header), &info, sizeof(info));
	return quicket_sendmsg(sockfd, &header, (int)(flags & ~STREAM_FLAGS));
}

ssize_t quic_recvmsg(int sockfd, void *msg, size_t len, int64_t *sid, uint32_t *flags)
{
	union stream_control control = { .room = { 0 } };
	struct quic_stream_info info;
	struct iovec part = { .iov_base = msg, .iov_len = len };
	struct msghdr header = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t received = quicket_recvmsg(sockfd, &header, flags != NULL ? (int)*flags : 0);
	struct cmsghdr *first;

	if (received < 0)
		return received;
	if (flags != NULL)
		*flags = (uint32_t)header.msg_flags;
	first = CMSG_FIRSTHDR(&header);
	if (first == NULL || first->cmsg_level != SOL_QUIC || first->cmsg_type != QUIC_STREAM_INFO)
		return received;
	memcpy(&info, CMSG_DATA(first), sizeof(info));
	if (sid != NULL)
		*sid = info.stream_id;
	if (flags != NULL)
		*flags |= info.stream_flags;
	return received;
}
