// SPDX-License-Identifier: Apache-2.0
/* What is asked of the kernel about the interfaces under DPDK's devices; Rust has no structs for it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* An interface's flags, or a negative errno. watch : any socket of its network namespace. */
int dpdk_kernel_flags(int watch, uint32_t interface)
{
	struct ifreq request;
	memset(&request, 0, sizeof(request));
	request.ifr_ifindex = (int)interface;
	if (ioctl(watch, SIOCGIFNAME, &request) < 0 || ioctl(watch, SIOCGIFFLAGS, &request) < 0)
		return -errno;
	return (uint16_t)request.ifr_flags;
}

/* A function of the libbpf that the AF_XDP driver brought, NULL if it did not. */
static void *libbpf(const char *name)
{
	void *handle = dlopen("libbpf.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *function = handle == NULL ? NULL : dlsym(handle, name);
	if (handle != NULL)
		dlclose(handle);
	return function;
}

/*
 * The XDP program that is attached to an interface in one mode (XDP_FLAGS_*_MODE): its number, 0 if there is
 * none, and its name of BPF_OBJ_NAME_LEN bytes, empty if it does not tell. Or a negative errno.
 */
int dpdk_kernel_xdp(uint32_t interface, uint32_t mode, char *name)
{
	int (*query)(int, int, uint32_t *) = libbpf("bpf_xdp_query_id");
	int (*open)(uint32_t) = libbpf("bpf_prog_get_fd_by_id");
	int (*describe)(int, void *, uint32_t *) = libbpf("bpf_obj_get_info_by_fd");
	name[0] = '\0';
	if (query == NULL || open == NULL || describe == NULL)
		return 0;
	uint32_t id = 0;
	int result = query((int)interface, (int)mode, &id);
	int fd = result < 0 || id == 0 ? -1 : open(id);
	if (fd >= 0) {
		struct bpf_prog_info info;
		uint32_t size = sizeof(info);
		memset(&info, 0, sizeof(info));
		if (describe(fd, &info, &size) == 0)
			memcpy(name, info.name, BPF_OBJ_NAME_LEN);
		close(fd);
	}
	return result < 0 ? result : (int)id;
}

/* -EBUSY when an AF_XDP socket has this queue. Asks by opening one, whose queue is free again later. */
int dpdk_kernel_queue_free(uint32_t interface, uint32_t queue)
{
	const size_t size = 4 * 4096;
	const int entries = 8;
	int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct xdp_umem_reg umem = {.addr = (uintptr_t)memory, .len = size, .chunk_size = 2048};
	struct sockaddr_xdp address = {.sxdp_family = AF_XDP,
				       .sxdp_flags = XDP_COPY,
				       .sxdp_ifindex = interface,
				       .sxdp_queue_id = queue};
	int result = 0;
	if (memory == MAP_FAILED || setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof(umem)) != 0 ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &entries, sizeof(entries)) != 0 ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &entries, sizeof(entries)) != 0 ||
	    setsockopt(fd, SOL_XDP, XDP_RX_RING, &entries, sizeof(entries)) != 0 ||
	    bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		result = -errno;
	close(fd);
	if (memory != MAP_FAILED)
		munmap(memory, size);
	return result;
}
