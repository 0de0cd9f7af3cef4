/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * netmap's names for requests, for programs that use nm_open and its like (netmap_user.h). There are no rings here: what is said of them is read
 * and means nothing.
 */
#ifndef QUICKET_NETMAP_H
#define QUICKET_NETMAP_H

#include <net/if.h>
#include <stdint.h>
#include <sys/ioctl.h>

/* The version of netmap's interface that has these names. */
#define NETMAP_API 14
#define NETMAP_MIN_API 14
#define NETMAP_MAX_API 15

/* With which names begin that are netmap's switch; here they are not told from others. */
#define NM_BDG_NAME "vale"

struct nmreq {
	char nr_name[IFNAMSIZ];
	uint32_t nr_version;
	uint32_t nr_offset;
	uint32_t nr_memsize;
	uint32_t nr_tx_slots;
	uint32_t nr_rx_slots;
	uint16_t nr_tx_rings;
	uint16_t nr_rx_rings;
	uint16_t nr_ringid;
	uint16_t nr_cmd;
	uint16_t nr_arg1;
	uint16_t nr_arg2;
	uint32_t nr_arg3;
	uint32_t nr_flags;
	uint32_t spare2[1];
};

/* In nr_ringid. */
#define NETMAP_RING_MASK 0x0fff
#define NETMAP_NO_TX_POLL 0x1000
#define NETMAP_SW_RING 0x2000
#define NETMAP_HW_RING 0x4000
#define NETMAP_DO_RX_POLL 0x8000

/* In nr_flags. */
#define NR_REG_MASK 0xf
enum {
	NR_REG_DEFAULT = 0,
	NR_REG_ALL_NIC = 1,
	NR_REG_SW = 2,
	NR_REG_NIC_SW = 3,
	NR_REG_ONE_NIC = 4,
	NR_REG_PIPE_MASTER = 5,
	NR_REG_PIPE_SLAVE = 6,
	NR_REG_NULL = 7,
	NR_REG_ONE_SW = 8,
};
#define NR_MONITOR_TX 0x100
#define NR_MONITOR_RX 0x200
#define NR_ZCOPY_MON 0x400
#define NR_EXCLUSIVE 0x800
#define NR_RX_RINGS_ONLY 0x2000
#define NR_TX_RINGS_ONLY 0x4000
#define NR_ACCEPT_VNET_HDR 0x8000
#define NR_DO_RX_POLL 0x10000
#define NR_NO_TX_POLL 0x20000

/*
 * There is nothing to synchronize. Programs ask for it by the descriptor, for which the system does not know netmap's numbers: these
 * have it closed at execve (FIOCLEX), which it is already.
 */
#define NIOCTXSYNC FIOCLEX
#define NIOCRXSYNC FIOCLEX

#endif
