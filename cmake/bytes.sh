# bytes.sh NAME FILE: the file as a C array of characters that ends with a zero.
echo "extern const char $1[];"
echo "const char $1[] = {"
od -An -v -td1 "$2" | sed 's/  *\(-*[0-9][0-9]*\)/\1,/g'
echo "0};"
