/*
 * A program that performs the handshake itself, with GnuTLS: TLS messages travel through the socket
 * with QUIC_HANDSHAKE_INFO, secrets are handed over as options. With a certificate, or with a
 * pre-shared key.
 */
#include "pair.h"

#include <gnutls/gnutls.h>
#include <linux/tls.h>

#define TRANSPORT_PARAMETERS 0x39
#define MOST 65536

static const char priority[] =
	"NORMAL:-VERS-ALL:+VERS-TLS1.3:+PSK:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:"
	"+CHACHA20-POLY1305:-GROUP-ALL:+GROUP-X25519:%DISABLE_TLS13_COMPAT_MODE";
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
	switch (gnutls_cipher_get(session)) {
	case GNUTLS_CIPHER_AES_128_GCM:
		secret.type = TLS_CIPHER_AES_GCM_128;
		break;
	case GNUTLS_CIPHER_AES_256_GCM:
		secret.type = TLS_CIPHER_AES_GCM_256;
		break;
	case GNUTLS_CIPHER_CHACHA20_POLY1305:
		secret.type = TLS_CIPHER_CHACHA20_POLY1305;
		break;
	default:
		return -1;
	}
	const void *both[2] = { receive, send };
	for (uint8_t way = 0; way < 2; way++) {
		if (both[way] == NULL)
			continue;
		secret.send = way;
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

static gnutls_session_t session_for(int fd, unsigned int side, int with_psk)
{
	gnutls_session_t session;
	CHECK(gnutls_init(&session, side | GNUTLS_NO_AUTO_SEND_TICKET) == 0);
	gnutls_session_set_ptr(session, (void *)(intptr_t)fd);
	CHECK(gnutls_priority_set_direct(session, priority, NULL) == 0);
	gnutls_handshake_set_secret_function(session, on_secret);
	gnutls_handshake_set_read_function(session, on_message);
	gnutls_alert_set_read_function(session, on_alert);
	CHECK(gnutls_session_ext_register(
		      session, "QUIC transport parameters", TRANSPORT_PARAMETERS, GNUTLS_EXT_TLS,
		      recv_parameters, send_parameters, NULL, NULL, NULL,
		      GNUTLS_EXT_FLAG_TLS | GNUTLS_EXT_FLAG_CLIENT_HELLO | GNUTLS_EXT_FLAG_EE) == 0);
	gnutls_datum_t alpn = { .data = (unsigned char *)"test", .size = 4 };
	CHECK(gnutls_alpn_set_protocols(session, &alpn, 1, GNUTLS_ALPN_MANDATORY) == 0);
	int is_server = (side & GNUTLS_SERVER) != 0;
	if (with_psk && is_server) {
		gnutls_psk_server_credentials_t credentials;
		CHECK(gnutls_psk_allocate_server_credentials(&credentials) == 0);
		gnutls_psk_set_server_credentials_function(credentials, psk_for_client);
		CHECK(gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials) == 0);
	} else if (with_psk) {
		gnutls_psk_client_credentials_t credentials;
		gnutls_datum_t key = { .data = shared, .size = sizeof(shared) };
		CHECK(gnutls_psk_allocate_client_credentials(&credentials) == 0);
		CHECK(gnutls_psk_set_client_credentials(credentials, "client", &key,
							GNUTLS_PSK_KEY_RAW) == 0);
		CHECK(gnutls_credentials_set(session, GNUTLS_CRD_PSK, credentials) == 0);
	} else {
		gnutls_certificate_credentials_t credentials;
		CHECK(gnutls_certificate_allocate_credentials(&credentials) == 0);
		if (is_server)
			CHECK(gnutls_certificate_set_x509_key_file(credentials,
								   given("CERTIFICATE"),
								   given("KEY"),
								   GNUTLS_X509_FMT_PEM) == 0);
		else
			CHECK(gnutls_certificate_set_x509_trust_file(credentials,
								     given("CERTIFICATE"),
								     GNUTLS_X509_FMT_PEM) == 1);
		CHECK(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials) == 0);
		if (!is_server) {
			gnutls_session_set_verify_cert(session, "localhost", 0);
			CHECK(gnutls_server_name_set(session, GNUTLS_NAME_DNS, "localhost", 9) == 0);
		}
	}
	return session;
}

struct served {
	int listener;
	int with_psk;
};

static void *serve_with_gnutls(void *argument)
{
	struct served *served = argument;
	char data[64];
	int64_t id;
	uint32_t flags;
	int fd = accept(served->listener, NULL, NULL);
	CHECK(fd >= 0);
	handshake(session_for(fd, GNUTLS_SERVER, served->with_psk));
	CHECK(recv_from(fd, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 2 && (flags & QUIC_STREAM_FLAG_FIN) && memcmp(data, "hello", 5) == 0);
	CHECK(send_on(fd, "world", 5, -1, QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_FIN) == 5);
	FAILS(recv(fd, data, sizeof(data), 0), ENOTCONN);
	CHECK(close(fd) == 0);
	return NULL;
}

int main(int count, char **arguments)
{
	struct sockaddr_storage address;
	socklen_t length;
	alarm(120);
	CHECK(count > 1);
	struct served served = {
		.listener = listener(AF_INET6, &address, &length),
		.with_psk = strcmp(arguments[1], "psk") == 0,
	};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, serve_with_gnutls, &served) == 0);
	int fd = socket(AF_INET6, SOCK_DGRAM, IPPROTO_QUIC);
	CHECK(fd >= 0);
	CHECK(setsockopt(fd, SOL_QUIC, QUIC_SOCKOPT_ALPN, "test", 4) == 0);
	CHECK(connect(fd, (struct sockaddr *)&address, length) == 0);
	handshake(session_for(fd, GNUTLS_CLIENT, served.with_psk));
	char data[64];
	int64_t id;
	uint32_t flags;
	CHECK(send_on(fd, "hello", 5, -1,
		      QUIC_STREAM_FLAG_NEW | QUIC_STREAM_FLAG_UNI | QUIC_STREAM_FLAG_FIN) == 5);
	CHECK(recv_from(fd, data, sizeof(data), &id, &flags) == 5);
	CHECK(id == 1 && memcmp(data, "world", 5) == 0);
	CHECK(close(fd) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	puts("passed");
	return 0;
}
