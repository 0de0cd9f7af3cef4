/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A client of HTTP/3: `fetch https://HOST[:PORT]/PATH` writes what it names to standard output.
 *
 *	cc fetch.c -o fetch $(pkg-config --cflags --libs libquicket) && ./fetch --help
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <quicket/http.h>

#define MAX_FIELDS 64

static const char help[] =
	"usage: fetch [OPTIONS] https://HOST[:PORT]/PATH\n"
	"\n"
	"Writes what the URL names to standard output; fails if there is no answer, or its status is not 2xx.\n"
	"\n"
	"  -X, --method METHOD    GET by default, POST with a body\n"
	"  -H, --header 'N: V'    a field of the request; may be repeated\n"
	"  -d, --data TEXT        the body\n"
	"  -T, --upload FILE      the body, read while it is sent; - for standard input\n"
	"  -o, --output FILE      instead of standard output\n"
	"  -i, --include          status and fields first, and trailers last, to standard error\n"
	"      --info             what the connection was like, to standard error\n"
	"  -m, --max-time SECONDS for all of it; without end by default\n"
	"      --ca FILE          roots that are trusted (PEM), instead of those of the system\n"
	"      --pin SHA256       the certificate that is trusted\n"
	"      --cert FILE, --key FILE   what the client shows of itself (PEM)\n"
	"      --sessions FOLDER  keeps sessions there, so that the next time GET goes as 0-RTT data\n"
	"      --no-early-data    waits for the handshake first: 0-RTT data can be repeated by attackers\n"
	"      --stay             does not follow this host from network to network\n"
	"      --host NAME=ADDRESS[,ADDRESS...]   instead of looking it up\n"
	"      --qlog FOLDER      logs the connections\n"
	"\n"
	"  fetch https://example.org/\n"
	"  fetch --sessions ~/.cache/fetch -o large https://example.org/large\n"
	"  tar c folder | fetch -T - -X PUT https://example.org/folder.tar\n";

/* What the command line says. */
struct request {
	struct quicket_http_options options;
	const char *method, *data, *upload, *output, *url;
	char *fields[MAX_FIELDS];
	int field_count, include, info;
	double max_time;
};

static struct timespec begun;

static int failed(const char *what)
{
	fprintf(stderr, "fetch: %s: %s\n", what, quicket_http_error());
	return -1;
}

static int failed_file(const char *name)
{
	fprintf(stderr, "fetch: %s: %s\n", name, strerror(errno));
	return -1;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begun.tv_sec) + (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
}

/* The milliseconds that are left of the time for all: less than 0 without end. */
static int left(const struct request *request)
{
	double rest = (request->max_time - seconds()) * 1e3;

	if (request->max_time <= 0)
		return -1;
	return rest < 0 ? 0 : rest > INT_MAX ? INT_MAX : (int)rest + 1;
}

/* Writes a piece of the body, all of it. */
static int write_piece(struct quicket_exchange *exchange, const struct request *request, const char *piece,
		       size_t length)
{
	while (length > 0) {
		ssize_t taken = quicket_exchange_write(exchange, piece, length, left(request));

		if (taken < 0)
			return -1;
		piece += taken;
		length -= (size_t)taken;
	}
	return 0;
}

/* Sends a file as the body. The server may answer before it has all of it: then its answer says why. */
static int upload(struct quicket_exchange *exchange, const struct request *request)
{
	static char piece[65536];
	int is_stdin = strcmp(request->upload, "-") == 0, status = 0;
	FILE *file = is_stdin ? stdin : fopen(request->upload, "rb");
	size_t length;

	if (file == NULL)
		return failed_file(request->upload);
	if (quicket_exchange_send_head(exchange) != 0)
		status = -1;
	while (status == 0 && (length = fread(piece, 1, sizeof(piece), file)) > 0)
		status = write_piece(exchange, request, piece, length);
	if (status != 0 && errno == EPIPE)
		status = 0;
	else if (status == 0 && ferror(file))
		status = failed_file(request->upload);
	else if (status != 0 || quicket_exchange_finish(exchange, left(request)) != 0)
		status = failed(request->url);
	if (!is_stdin)
		fclose(file);
	return status;
}

static int add_fields(struct quicket_exchange *exchange, const struct request *request)
{
	for (int n = 0; n < request->field_count; n++) {
		char *field = request->fields[n], *colon = strchr(field, ':'), *value;

		if (colon == NULL) {
			fprintf(stderr, "fetch: %s: a field has a name, a colon and a value\n", field);
			return -1;
		}
		*colon = 0;
		value = colon + 1 + strspn(colon + 1, " ");
		if (quicket_exchange_add_field(exchange, field, value) != 0)
			return failed(field);
	}
	return 0;
}

static int send_request(struct quicket_exchange *exchange, const struct request *request)
{
	size_t length = request->data == NULL ? 0 : strlen(request->data);

	if (add_fields(exchange, request) != 0)
		return -1;
	if (request->upload != NULL)
		return upload(exchange, request);
	return quicket_exchange_send(exchange, request->data, length) == 0 ? 0 : failed(request->url);
}

static void show_fields(struct quicket_exchange *exchange,
			int (*each)(struct quicket_exchange *, size_t, const char **, const char **))
{
	const char *name, *value;

	for (size_t n = 0; each(exchange, n, &name, &value) == 1; n++)
		fprintf(stderr, "%s: %s\n", name, value);
	fputc('\n', stderr);
}

static void show_info(struct quicket_exchange *exchange)
{
	static const char *const early[] = { "none", "accepted", "rejected" };
	struct quicket_exchange_info info = { .size = sizeof(info) };

	if (quicket_exchange_info(exchange, &info) != 0)
		return;
	fprintf(stderr, "early data: %s\nmoves: %" PRIu64 "\nround trip: %" PRIu64 " us\nfamily: IPv%d\n",
		early[info.early_data % 3], info.path_changes, info.smoothed_rtt,
		info.remote.ss_family == AF_INET ? 4 : 6);
}

/* Writes the content as it comes. */
static int receive(struct quicket_exchange *exchange, const struct request *request, FILE *to)
{
	static char piece[65536];
	ssize_t length;

	while ((length = quicket_exchange_read(exchange, piece, sizeof(piece), left(request))) > 0) {
		if (fwrite(piece, 1, (size_t)length, to) != (size_t)length)
			return failed_file("writing");
	}
	if (length < 0)
		return failed(request->url);
	if (fflush(to) != 0)
		return failed_file("writing");
	return quicket_exchange_trailers(exchange, left(request)) < 0 ? failed(request->url) : 0;
}

/* Does what the command line says, with a request that is sent. */
static int exchange_all(struct quicket_exchange *exchange, const struct request *request, FILE *to)
{
	int status;

	if (send_request(exchange, request) != 0)
		return -1;
	status = quicket_exchange_status(exchange, left(request));
	if (status < 0)
		return failed(request->url);
	if (request->include) {
		fprintf(stderr, "%d\n", status);
		show_fields(exchange, quicket_exchange_each_field);
	}
	if (receive(exchange, request, to) != 0)
		return -1;
	if (request->include)
		show_fields(exchange, quicket_exchange_each_trailer);
	if (request->info)
		show_info(exchange);
	if (status / 100 != 2) {
		fprintf(stderr, "fetch: %s: status %d\n", request->url, status);
		return -1;
	}
	return 0;
}

static int fetch(const struct request *request)
{
	struct quicket_http *http = quicket_http_new(&request->options);
	struct quicket_exchange *exchange;
	FILE *to = stdout;
	int status = -1;

	if (http == NULL)
		return failed("the options");
	exchange = quicket_exchange_new(http, request->method, request->url);
	if (exchange == NULL)
		failed("the request");
	else if (request->output != NULL && (to = fopen(request->output, "wb")) == NULL)
		failed_file(request->output);
	else
		status = exchange_all(exchange, request, to);
	if (to != NULL && to != stdout && fclose(to) != 0)
		status = failed_file(request->output);
	quicket_exchange_free(exchange);
	quicket_http_free(http);
	return status;
}

enum { CA = 256, PIN, CERT, KEY, SESSIONS, NO_EARLY_DATA, STAY, HOST, QLOG, INFO };

static const struct option names[] = {
	{ "method", required_argument, NULL, 'X' },
	{ "header", required_argument, NULL, 'H' },
	{ "data", required_argument, NULL, 'd' },
	{ "upload", required_argument, NULL, 'T' },
	{ "output", required_argument, NULL, 'o' },
	{ "include", no_argument, NULL, 'i' },
	{ "info", no_argument, NULL, INFO },
	{ "max-time", required_argument, NULL, 'm' },
	{ "ca", required_argument, NULL, CA },
	{ "pin", required_argument, NULL, PIN },
	{ "cert", required_argument, NULL, CERT },
	{ "key", required_argument, NULL, KEY },
	{ "sessions", required_argument, NULL, SESSIONS },
	{ "no-early-data", no_argument, NULL, NO_EARLY_DATA },
	{ "stay", no_argument, NULL, STAY },
	{ "host", required_argument, NULL, HOST },
	{ "qlog", required_argument, NULL, QLOG },
	{ "help", no_argument, NULL, 'h' },
	{ 0 },
};

/* Takes an option; false if it is none. */
static int take(struct request *request, int option)
{
	struct quicket_http_options *options = &request->options;
	char *end;

	switch (option) {
	case 'X': request->method = optarg; return 1;
	case 'd': request->data = optarg; return 1;
	case 'T': request->upload = optarg; return 1;
	case 'o': request->output = optarg; return 1;
	case 'i': request->include = 1; return 1;
	case INFO: request->info = 1; return 1;
	case CA: options->ca_file = optarg; return 1;
	case PIN: options->pins = optarg; return 1;
	case CERT: options->cert_file = optarg; return 1;
	case KEY: options->key_file = optarg; return 1;
	case SESSIONS: options->sessions = optarg; return 1;
	case NO_EARLY_DATA: options->flags |= QUICKET_HTTP_NO_EARLY_DATA; return 1;
	case STAY: options->flags |= QUICKET_HTTP_STAY; return 1;
	case HOST: options->hosts = optarg; return 1;
	case QLOG: options->qlog = optarg; return 1;
	case 'H':
		if (request->field_count == MAX_FIELDS) {
			fprintf(stderr, "fetch: more than %d fields\n", MAX_FIELDS);
			return 0;
		}
		request->fields[request->field_count++] = optarg;
		return 1;
	case 'm':
		request->max_time = strtod(optarg, &end);
		if (*end == 0 && request->max_time > 0)
			return 1;
		fprintf(stderr, "fetch: %s: seconds are a number above 0\n", optarg);
		return 0;
	default: return 0;
	}
}

int main(int count, char **words)
{
	struct request request = { .options = { .size = sizeof(request.options) } };
	int option;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	while ((option = getopt_long(count, words, "X:H:d:T:o:im:h", names, NULL)) != -1) {
		if (option == 'h') {
			fputs(help, stdout);
			return 0;
		}
		if (!take(&request, option)) {
			fputs("fetch: see fetch --help\n", stderr);
			return 2;
		}
	}
	if (optind + 1 != count || (request.data != NULL && request.upload != NULL)) {
		fputs("fetch: one URL, and one body at most; see fetch --help\n", stderr);
		return 2;
	}
	request.url = words[optind];
	if (request.method == NULL)
		request.method = request.data != NULL || request.upload != NULL ? "POST" : "GET";
	return fetch(&request) == 0 ? 0 : 1;
}
