# cmake -DINPUT_DIR=presets -DOUTPUT=presets_data.cpp -DROOM=arch -DHEADER=presets.h -DSTRUCT=PresetFile
#   -DFUNCTION=preset_files -P EmbedPresets.cmake: the folder's JSON files (and a page's) as strings of the library.
file(GLOB files ${INPUT_DIR}/*.json ${INPUT_DIR}/*.css ${INPUT_DIR}/*.js)
list(SORT files)
set(code "#include \"lamina/${ROOM}/${HEADER}\"\n\nnamespace lamina::${ROOM} {\nnamespace {\nusing namespace std::string_view_literals;  // the length without counting\nconstexpr ${STRUCT} kFiles[] = {\n")
foreach(path IN LISTS files)
  get_filename_component(name ${path} NAME)
  string(REGEX REPLACE "\\.json$" "" name ${name})
  file(READ ${path} text)
  string(APPEND code "{\"${name}\", R\"preset(${text})preset\"sv},\n")
endforeach()
string(APPEND code "};\n}  // namespace\n\nstd::span<const ${STRUCT}> ${FUNCTION}() { return kFiles; }\n\n}  // namespace lamina::${ROOM}\n")
file(WRITE ${OUTPUT} "${code}")
