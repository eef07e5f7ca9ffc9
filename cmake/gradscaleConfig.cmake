# find_package(gradscale [0.1] [COMPONENTS train mpi]): targets gradscale::gradscale, gradscale::train,
# gradscale::mpi, as far as they are installed. set(gradscale_USE_STATIC_LIBS ON) before it takes the archives.
# This file lies in LIBDIR/cmake/gradscale and finds everything from there, wherever the tree was moved to.
include(CMakeFindDependencyMacro)
find_package(Threads QUIET)
if(NOT TARGET Threads::Threads) # a project without the language C
  add_library(Threads::Threads INTERFACE IMPORTED)
  set_target_properties(Threads::Threads PROPERTIES INTERFACE_LINK_LIBRARIES pthread)
endif()

get_filename_component(_gradscale_lib "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
find_path(_gradscale_include gradscale/base.h NO_DEFAULT_PATH NO_CACHE
  PATHS "${_gradscale_lib}/../include" "${_gradscale_lib}/../../include") # lib, or lib/x86_64-linux-gnu

# _gradscale_part(TARGET FILE what it links always, ;-list of what only its archive links)
function(_gradscale_part target file links private)
  set(shared "${_gradscale_lib}/lib${file}${CMAKE_SHARED_LIBRARY_SUFFIX}")
  set(archive "${_gradscale_lib}/lib${file}.a")
  if(TARGET gradscale::${target})
    return()
  endif()
  if(EXISTS "${archive}" AND (gradscale_USE_STATIC_LIBS OR NOT EXISTS "${shared}"))
    add_library(gradscale::${target} STATIC IMPORTED)
    set(location "${archive}")
    list(APPEND links ${private})
  elseif(EXISTS "${shared}")
    add_library(gradscale::${target} SHARED IMPORTED)
    set(location "${shared}")
  else()
    return()
  endif()
  set_target_properties(gradscale::${target} PROPERTIES IMPORTED_LOCATION "${location}"
    IMPORTED_LINK_INTERFACE_LANGUAGES C INTERFACE_INCLUDE_DIRECTORIES "${_gradscale_include}"
    INTERFACE_LINK_LIBRARIES "${links}")
endfunction()

_gradscale_part(gradscale gradscale "" "m;Threads::Threads")
_gradscale_part(train gradscale_train gradscale::gradscale "z;png;jpeg")
if(EXISTS "${_gradscale_lib}/libgradscale_device.a")
  _gradscale_part(device gradscale_device gradscale::gradscale ${CMAKE_DL_LIBS})
endif()
if("mpi" IN_LIST gradscale_FIND_COMPONENTS OR EXISTS "${_gradscale_lib}/libgradscale_mpi.a")
  find_package(MPI QUIET COMPONENTS C)
  if(TARGET MPI::MPI_C)
    _gradscale_part(mpi gradscale_mpi gradscale::gradscale MPI::MPI_C)
  else()
    _gradscale_part(mpi gradscale_mpi gradscale::gradscale "")
  endif()
endif()

set(gradscale_FOUND TRUE)
if(NOT TARGET gradscale::gradscale OR NOT _gradscale_include)
  set(gradscale_FOUND FALSE)
  set(gradscale_NOT_FOUND_MESSAGE "no libgradscale in ${_gradscale_lib}")
endif()
foreach(_gradscale_component ${gradscale_FIND_COMPONENTS})
  set(gradscale_${_gradscale_component}_FOUND FALSE)
  if(TARGET gradscale::${_gradscale_component})
    set(gradscale_${_gradscale_component}_FOUND TRUE)
  elseif(gradscale_FIND_REQUIRED_${_gradscale_component})
    set(gradscale_FOUND FALSE)
    set(gradscale_NOT_FOUND_MESSAGE "libgradscale_${_gradscale_component} is not installed in ${_gradscale_lib}")
  endif()
endforeach()
