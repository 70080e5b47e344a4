# SPDX-License-Identifier: Apache-2.0
"""The kernel matrix, `make test-kernels`: what is promised to load, on Debian's kernels, from every clang.

`registry` says which kernels and compilers, `packages` fetches them, `programs` compiles what is loaded,
`initramfs`, `machine` and `guest.sh` are the virtual machine, `life` what is done with an interface in it,
and `report` makes docs/kernels.md of the outcome.
"""
