/*
 * A program that performs the handshake itself, with GnuTLS: TLS messages travel through the socket
 * with QUIC_HANDSHAKE_INFO, secrets are handed over as options.
 */
#ifndef TLS_H
#define TLS_H

#include "pair.h"

#include <gnutls/gnutls.h>
#include <linux/tls.h>

#define TRANSPORT_PARAMETERS 0x39
#define MOST 65536

/* What a handshake is like. */
struct tls_options {
	int is_server;
	/* A pre-shared key instead of a certificate. */
	int with_psk;
	/* AES-128-CCM instead of what servers prefer. */
	int with_ccm;
	const char *alpn;
	/* Tickets and early data: the master key of a server, a session of a client that has one. */
	int with_tickets;
	gnutls_datum_t session;
};

static const char priority[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+PSK:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:"
	"+CHACHA20-POLY1305:-GROUP-ALL:+GROUP-X25519:%DISABLE_TLS13_COMPAT_MODE";
static const char ccm_alone[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-CCM:-GROUP-ALL:+GROUP-X25519:"
	"%DISABLE_TLS13_COMPAT_MODE";
static unsigned char shared[32] = "a key that both sides have known";

static const uint8_t level_of[] = {
	[GNUTLS_ENCRYPTION_LEVEL_INITIAL] = QUIC_CRYPTO_INITIAL,
	[GNUTLS_ENCRYPTION_LEVEL_EARLY] = QUIC_CRYPTO_EARLY,
	[GNUTLS_ENCRYPTION_LEVEL_HANDSHAKE] = QUIC_CRYPTO_HANDSHAKE,
	[GNUTLS_ENCRYPTION_LEVEL_APPLICATION] = QUIC_CRYPTO_APP,
};

static int socket_of(gnutls_session_t session)
{
	return (int)(intptr_t)gnutls_session_get_ptr(session);
}

static gnutls_record_encryption_level_t level_from(uint8_t level)
{
	switch (level) {
	case QUIC_CRYPTO_INITIAL:
		return GNUTLS_ENCRYPTION_LEVEL_INITIAL;
	case QUIC_CRYPTO_HANDSHAKE:
		return GNUTLS_ENCRYPTION_LEVEL_HANDSHAKE;
	default:
		return GNUTLS_ENCRYPTION_LEVEL_APPLICATION;
	}
}

/* TLS has a message for the peer. */
static int on_message(gnutls_session_t session, gnutls_record_encryption_level_t level,
		      gnutls_handshake_description_t type, const void *data, size_t length)
{
	if (type == GNUTLS_HANDSHAKE_CHANGE_CIPHER_SPEC)
		return 0;
	struct quic_handshake_info info = { .crypto_level = level_of[level] };
	ssize_t sent = send_with(socket_of(session), data, length, QUIC_HANDSHAKE_INFO, &info,
				 sizeof(info), 0);
	return sent == (ssize_t)length ? 0 : -1;
}

/* TLS has a secret. */
static int on_secret(gnutls_session_t session, gnutls_record_encryption_level_t level,
		     const void *receive, const void *send, size_t length)
{
	struct quic_crypto_secret secret = { .level = level_of[level] };
	CHECK(length <= sizeof(secret.secret));
	switch (level == GNUTLS_ENCRYPTION_LEVEL_EARLY ? gnutls_early_cipher_get(session) :
							 gnutls_cipher_get(session)) {
	case GNUTLS_CIPHER_AES_128_GCM:
		secret.type = TLS_CIPHER_AES_GCM_128;
		break;
	case GNUTLS_CIPHER_AES_256_GCM:
		secret.type = TLS_CIPHER_AES_GCM_256;
		break;
	case GNUTLS_CIPHER_AES_128_CCM:
		secret.type = TLS_CIPHER_AES_CCM_128;
		break;
	case GNUTLS_CIPHER_CHACHA20_POLY1305:
		secret.type = TLS_CIPHER_CHACHA20_POLY1305;
		break;
	default:
		return -1;
	}
	const void *both[2] = { receive, send };
	/* That to send with first: with that to receive with, the connection is established. */
	for (int way = 1; way >= 0; way--) {
		if (both[way] == NULL)
			continue;
		secret.send = (uint8_t)way;
		memcpy(secret.secret, both[way], length);
		if (setsockopt(socket_of(session), SOL_QUIC, QUIC_SOCKOPT_CRYPTO_SECRET, &secret,
			       sizeof(secret)) != 0)
			return -1;
	}
	return 0;
}

static int on_alert(gnutls_session_t session, gnutls_record_encryption_level_t level,
		    gnutls_alert_level_t alert_level, gnutls_alert_description_t alert)
{
	(void)session, (void)level, (void)alert_level, (void)alert;
	return 0;
}

static int send_parameters(gnutls_session_t session, gnutls_buffer_t buffer)
{
	uint8_t parameters[512];
	socklen_t length = sizeof(parameters);
	CHECK(getsockopt(socket_of(session), SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT,
			 parameters, &length) == 0);
	return gnutls_buffer_append_data(buffer, parameters, length);
}

static int recv_parameters(gnutls_session_t session, const uint8_t *data, size_t length)
{
	CHECK(setsockopt(socket_of(session), SOL_QUIC, QUIC_SOCKOPT_TRANSPORT_PARAM_EXT, data,
			 (socklen_t)length) == 0);
	return 0;
}

/* Receives TLS messages until TLS is content. */
static void handshake(gnutls_session_t session)
{
	int fd = socket_of(session);
	static _Thread_local char data[MOST];
	for (;;) {
		int answer = gnutls_handshake(session);
		if (answer == 0)
			return;
		if (gnutls_error_is_fatal(answer)) {
			fprintf(stderr, "TLS: %s\n", gnutls_strerror(answer));
			exit(1);
		}
		union {
			char bytes[CMSG_SPACE(sizeof(struct quic_handshake_info))];
			struct cmsghdr align;
		} control;
		struct iovec part = { .iov_base = data, .iov_len = sizeof(data) };
		struct msghdr message = {
			.msg_iov = &part,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control),
		};
		ssize_t length = recvmsg(fd, &message, 0);
		CHECK(length > 0);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		CHECK(header != NULL && header->cmsg_type == QUIC_HANDSHAKE_INFO);
		struct quic_handshake_info info;
		memcpy(&info, CMSG_DATA(header), sizeof(info));
		answer = gnutls_handshake_write(session, level_from(info.crypto_level), data,
						(size_t)length);
		CHECK(answer == 0);
	}
}

static int psk_for_client(gnutls_session_t session, const char *name, gnutls_datum_t *key)
{
	(void)session, (void)name;
	key->data = gnutls_malloc(sizeof(shared));
	CHECK(key->data != NULL);
	memcpy(key->data, shared, sizeof(shared));
	key->size = sizeof(shared);
	return 0;
}

static void use_psk(gnutls_session_t session, int is_server)
{
	if (is_server) {
		gnutls_psk_server_credentials_t credentials;
		CHECK(gnutls_psk_allocate_server_credentials(&credentials) == 0);
		gnutls_psk_set_server_credentials_function(credentials, psk_for_client);
		CHECK(gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials) == 0);
		return;
	}
	gnutls_psk_client_credentials_t credentials;
	gnutls_datum_t key = { .data = shared, .size = sizeof(shared) };
	CHECK(gnutls_psk_allocate_client_credentials(&credentials) == 0);
	CHECK(gnutls_psk_set_client_credentials(credentials, "client", &key, GNUTLS_PSK_KEY_RAW) ==
	      0);
	CHECK(gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials) == 0);
}

static void use_certificate(gnutls_session_t session, int is_server)
{
	gnutls_certificate_credentials_t credentials;
	CHECK(gnutls_certificate_allocate_credentials(&credentials) == 0);
	CHECK(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
	if (is_server) {
		CHECK(gnutls_certificate_set_x509_key_file(credentials, given("CERTIFICATE"),
							   given("KEY"),
							   GNUTLS_X509_FMT_PEM) == 0);
		return;
	}
	const char *authority = getenv("AUTHORITY");
	CHECK(gnutls_certificate_set_x509_trust_file(
		      credentials, authority != NULL ? authority : given("CERTIFICATE"),
		      GNUTLS_X509_FMT_PEM) == 1);
	gnutls_session_set_verify_cert(session, "localhost", 0);
	CHECK(gnutls_server_name_set(session, GNUTLS_NAME_DNS, "localhost", 9) == 0);
}

static int never_seen(void *store, time_t expires, const gnutls_datum_t *key,
		      const gnutls_datum_t *data)
{
	(void)store, (void)expires, (void)key, (void)data;
	return 0;
}

static void use_tickets(gnutls_session_t session, const struct tls_options *options)
{
	static gnutls_anti_replay_t anti_replay;
	if (!options->is_server) {
		if (options->session.size != 0)
			CHECK(gnutls_session_set_data(session, options->session.data,
						      options->session.size) == 0);
		return;
	}
	if (anti_replay == NULL) {
		CHECK(gnutls_anti_replay_init(&anti_replay) == 0);
		gnutls_anti_replay_set_add_function(anti_replay, never_seen);
	}
	gnutls_anti_replay_enable(session, anti_replay);
	uint8_t key[128];
	socklen_t length = sizeof(key);
	CHECK(getsockopt(socket_of(session), SOL_QUIC, QUIC_SOCKOPT_SESSION_TICKET, key, &length) ==
	      0);
	gnutls_datum_t master = { .data = key, .size = length };
	CHECK(gnutls_session_ticket_enable_server(session, &master) == 0);
	CHECK(gnutls_record_set_max_early_data_size(session, UINT32_MAX) == 0);
}

static gnutls_session_t session_for(int fd, const struct tls_options *options)
{
	gnutls_session_t session;
	unsigned int flags = options->is_server ? GNUTLS_SERVER : GNUTLS_CLIENT;
	if (options->with_tickets)
		flags |= GNUTLS_ENABLE_EARLY_DATA | GNUTLS_NO_END_OF_EARLY_DATA;
	CHECK(gnutls_init(&session, flags | GNUTLS_NO_AUTO_SEND_TICKET) == 0);
	gnutls_session_set_ptr(session, (void *)(intptr_t)fd);
	CHECK(gnutls_priority_set_direct(session, options->with_ccm ? ccm_alone : priority,
					 NULL) == 0);
	gnutls_handshake_set_secret_function(session, on_secret);
	gnutls_handshake_set_read_function(session, on_message);
	gnutls_alert_set_read_function(session, on_alert);
	CHECK(gnutls_session_ext_register(
		      session, "QUIC transport parameters", TRANSPORT_PARAMETERS, GNUTLS_EXT_TLS,
		      recv_parameters, send_parameters, NULL, NULL, NULL,
		      GNUTLS_EXT_FLAG_TLS | GNUTLS_EXT_FLAG_CLIENT_HELLO | GNUTLS_EXT_FLAG_EE) == 0);
	gnutls_datum_t alpn = { .data = (unsigned char *)options->alpn,
				.size = (unsigned int)strlen(options->alpn) };
	CHECK(gnutls_alpn_set_protocols(session, &alpn, 1, GNUTLS_ALPN_MANDATORY) == 0);
	if (options->with_psk)
		use_psk(session, options->is_server);
	else
		use_certificate(session, options->is_server);
	if (options->with_tickets)
		use_tickets(session, options);
	return session;
}

#endif
