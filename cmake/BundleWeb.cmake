# cmake -DWEB=web -DWORK=build/src/web -DNPM=/usr/bin/npm -DPLAIN=report.css,page.js -DSOURCES=charts.js -DBUNDLES=charts.js
#   -DWITHOUT=TEXT -P BundleWeb.cmake: fills WORK/assets with the files PLAIN and what npm makes of SOURCES.
# NPM may be empty. Never fails: if the packages cannot be fetched it says so (WITHOUT), and BUNDLES are not in assets.
string(REPLACE "," ";" PLAIN "${PLAIN}")
string(REPLACE "," ";" SOURCES "${SOURCES}")
string(REPLACE "," ";" BUNDLES "${BUNDLES}")
list(TRANSFORM PLAIN PREPEND ${WEB}/ OUTPUT_VARIABLE plain)
list(TRANSFORM SOURCES PREPEND ${WEB}/ OUTPUT_VARIABLE sources)
file(REMOVE_RECURSE ${WORK}/assets)
file(MAKE_DIRECTORY ${WORK}/assets)
file(COPY ${plain} DESTINATION ${WORK}/assets)
if(NPM STREQUAL "")
  return()
endif()

file(COPY ${WEB}/package.json ${WEB}/package-lock.json ${WEB}/.npmrc ${sources} DESTINATION ${WORK})
file(SHA256 ${WEB}/package-lock.json wanted)
set(there "")
if(EXISTS ${WORK}/node_modules/installed)
  file(READ ${WORK}/node_modules/installed there)
endif()
set(result 0)
if(NOT there STREQUAL wanted)
  execute_process(COMMAND ${NPM} ci --ignore-scripts --prefer-offline --silent --fetch-retries=1
    --fetch-retry-mintimeout=1000 --fetch-timeout=20000 WORKING_DIRECTORY ${WORK} TIMEOUT 180
    RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
  if(result EQUAL 0)
    file(WRITE ${WORK}/node_modules/installed ${wanted})
  endif()
endif()
if(result EQUAL 0)
  execute_process(COMMAND ${NPM} run --silent build WORKING_DIRECTORY ${WORK} TIMEOUT 180
    RESULT_VARIABLE result OUTPUT_VARIABLE log ERROR_VARIABLE log)
endif()
if(result EQUAL 0)
  list(TRANSFORM BUNDLES PREPEND ${WORK}/dist/ OUTPUT_VARIABLE bundles)
  file(COPY ${bundles} DESTINATION ${WORK}/assets)
else()
  list(GET SOURCES 0 first)
  message(STATUS "npm cannot bundle ${SOURCES}: ${WITHOUT} (touch ${WEB}/${first} and build again to retry): "
    "${result} ${log}")
endif()
