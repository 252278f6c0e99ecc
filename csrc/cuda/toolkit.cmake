# Finds the CUDA toolkit and chooses the architectures, before CMake tries the compiler: what CMake
# assumes by default may be older than what the toolkit still compiles.
set(RIEMEM_CUDA_OLDEST 12.0)
set(RIEMEM_CUDA_ARCHITECTURES "" CACHE STRING
  "CUDA architectures, separated by commas, e.g. 80-real,90; empty: all of the toolkit from 7.5, and PTX")

if(CMAKE_CUDA_COMPILER)
  set(riemem_nvcc "${CMAKE_CUDA_COMPILER}")
elseif(DEFINED ENV{CUDACXX})
  set(riemem_nvcc "$ENV{CUDACXX}")
else()
  # What the message says and no more: a toolkit that is on no path was not meant to be used.
  find_program(RIEMEM_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    NO_CMAKE_SYSTEM_PATH)
  set(riemem_nvcc "${RIEMEM_NVCC}")
endif()
if(NOT riemem_nvcc)
  message(FATAL_ERROR
    "RIEMEM_CUDA=ON needs the CUDA toolkit, but no nvcc was found. Put it on PATH, or set CUDACXX, "
    "CUDA_HOME or CMAKE_CUDA_COMPILER, or build for the CPU with RIEMEM_CUDA=OFF.")
endif()

execute_process(COMMAND "${riemem_nvcc}" --version
  OUTPUT_VARIABLE riemem_nvcc_version RESULT_VARIABLE riemem_nvcc_failed ERROR_QUIET)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" riemem_matched "${riemem_nvcc_version}")
if(riemem_nvcc_failed OR NOT riemem_matched)
  message(FATAL_ERROR "RIEMEM_CUDA=ON: ${riemem_nvcc} --version does not answer as nvcc does.")
endif()
set(RIEMEM_CUDA_TOOLKIT "${CMAKE_MATCH_1}")
if(RIEMEM_CUDA_TOOLKIT VERSION_LESS RIEMEM_CUDA_OLDEST)
  message(FATAL_ERROR
    "RIEMEM_CUDA=ON needs CUDA ${RIEMEM_CUDA_OLDEST} or later, but ${riemem_nvcc} is of CUDA "
    "${RIEMEM_CUDA_TOOLKIT}. Set CUDACXX to a newer nvcc, or build for the CPU with "
    "RIEMEM_CUDA=OFF.")
endif()

if(RIEMEM_CUDA_ARCHITECTURES)
  string(REPLACE "," ";" CMAKE_CUDA_ARCHITECTURES "${RIEMEM_CUDA_ARCHITECTURES}")
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND "${riemem_nvcc}" --list-gpu-arch OUTPUT_VARIABLE riemem_archs)
  string(REGEX MATCHALL "compute_[0-9]+" riemem_archs "${riemem_archs}")
  set(riemem_newest 0)
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(arch IN LISTS riemem_archs)
    string(REPLACE "compute_" "" arch "${arch}")
    if(arch LESS 75)
      continue()
    endif()
    list(APPEND CMAKE_CUDA_ARCHITECTURES "${arch}-real")
    if(arch GREATER riemem_newest)
      set(riemem_newest ${arch})
    endif()
  endforeach()
  list(APPEND CMAKE_CUDA_ARCHITECTURES "${riemem_newest}-virtual")
endif()
set(CMAKE_CUDA_COMPILER "${riemem_nvcc}")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
message(STATUS "riemem: CUDA ${RIEMEM_CUDA_TOOLKIT}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
