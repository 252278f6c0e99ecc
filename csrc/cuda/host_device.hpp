// Marks functions that both the host and a kernel may call.
#pragma once

#if defined(__CUDACC__)
#define RIEMEM_HD __host__ __device__
#else
#define RIEMEM_HD
#endif
